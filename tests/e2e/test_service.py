#!/usr/bin/env python3
"""One daemon as a service: what it tells its manager, its exit statuses and sentences, its answers over HTTP.

COPPELIUS_BIN names the build folder. Python 3 without further packages."""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from ports import free_ports

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN = os.environ.get("COPPELIUS_BIN") or os.path.join(ROOT, "build", "release")
DAEMON = os.path.join(os.path.abspath(BIN), "daemon", "coppeliusd")


class Service:
    """A daemon alone in a folder of its own, with a service manager's end of the notify socket."""

    def __init__(self, watchdog_ms=None, **settings):
        self.folder = tempfile.mkdtemp(prefix="coppelius-service-")
        self.port, self.http_port = free_ports(2)
        self.settings = {
            "name": "a", "device": "cpu", "threads": "1", "listen": f"127.0.0.1:{self.port}",
            "state_dir": f"{self.folder}/state", "socket": f"{self.folder}/ctl.sock",
            "http": f"{{listen: 127.0.0.1:{self.http_port}}}", "tls": "off"}
        self.settings.update(settings)
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(f"{self.folder}/notify")
        self.manager.settimeout(0.1)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("COPPELIUSD_")}
        self.environment["NOTIFY_SOCKET"] = f"{self.folder}/notify"
        if watchdog_ms:
            self.environment["WATCHDOG_USEC"] = str(watchdog_ms * 1000)
        self.said = []
        self.process = None

    def config(self):
        path = f"{self.folder}/coppeliusd.yaml"
        with open(path, "w") as file:
            file.writelines(f"{key}: {value}\n" for key, value in self.settings.items())
        return path

    def start(self, *prefix):
        with open(f"{self.folder}/log", "ab") as log:
            self.process = subprocess.Popen([*prefix, DAEMON, "--config", self.config()], stderr=log,
                                            env=self.environment)

    def hear(self, what, seconds=30):
        """Whether the manager is told `what` before the time is over; what else is said is kept."""
        end = time.monotonic() + seconds
        while not any(what in text for text in self.said):
            if time.monotonic() > end:
                return False
            try:
                self.said.append(self.manager.recv(4096).decode())
            except TimeoutError:
                pass
        return True

    def logs(self, what, seconds=30):
        end = time.monotonic() + seconds
        while what not in self.text() and time.monotonic() < end:
            time.sleep(0.05)
        return what in self.text()

    def get(self, path, method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=5)
        connection.request(method, path)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def end(self, number=signal.SIGTERM, seconds=15):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)

    def text(self):
        with open(f"{self.folder}/log") as file:
            return file.read()

    def remove(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.manager.close()
        shutil.rmtree(self.folder)


class ServiceTest(unittest.TestCase):
    def service(self, **settings):
        made = Service(**settings)
        self.addCleanup(made.remove)
        return made

    def ready(self, **settings):
        made = self.service(**settings)
        made.start()
        self.assertTrue(made.hear("READY=1"), made.text())
        return made

    def refused(self, status, sentence, arguments=None, **settings):
        """Starts a daemon that must end by itself with the status and a sentence, within 10 s."""
        made = self.service(**settings)
        done = subprocess.run([DAEMON, *(arguments or ["--config", made.config()])], stderr=subprocess.PIPE,
                              text=True, timeout=10, env=made.environment, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(sentence, done.stderr)

    def test_the_manager_hears_ready_status_reload_and_the_end(self):
        service = self.ready(watchdog_ms=1500)
        self.assertTrue(service.logs('selftest="the golden step gave its bits'), service.text())
        self.assertTrue(service.hear("STATUS=Leader, 1 of 1 voters alive; no job"))
        self.assertTrue(service.hear("WATCHDOG=1"))
        service.said.clear()
        service.settings.update(log_level="debug", threads="2")
        service.config()
        service.process.send_signal(signal.SIGHUP)
        self.assertTrue(service.hear("RELOADING=1\nMONOTONIC_USEC="))
        self.assertTrue(service.hear("READY=1"))
        self.assertTrue(service.logs('config.reloaded keys="threads" need a restart'), service.text())
        service.settings["threads"] = "many"
        service.config()
        service.process.send_signal(signal.SIGHUP)
        self.assertTrue(service.logs("expected a whole number"), service.text())
        self.assertIn("coppelius_config_last_reload_successful 0", service.get("/metrics")[1])
        self.assertEqual(service.end(), 0)
        self.assertTrue(service.hear("STOPPING=1\nSTATUS=Stopping: SIGTERM"))
        self.assertIn("daemon.stopped", service.text())
        self.assertFalse(os.path.exists(service.settings["socket"]))

    def test_health_readiness_metrics_and_the_page(self):
        service = self.ready()
        end = time.monotonic() + 10
        while service.get("/readyz")[0] != 200 and time.monotonic() < end:
            time.sleep(0.1)
        status, text = service.get("/readyz?verbose")
        self.assertEqual(status, 200, text)
        self.assertIn("[+]selftest ok", text)
        self.assertEqual(service.get("/healthz"), (200, "ok\n"))
        self.assertEqual(service.get("/metrics", method="POST")[0], 405)
        status = json.loads(service.get("/api/v1/status")[1])
        self.assertTrue(status["ready"])
        self.assertEqual(status["nodes"][0]["name"], "a")
        self.assertEqual(json.loads(service.get("/api/v1/targets")[1])[0]["targets"],
                         [f"127.0.0.1:{service.http_port}"])
        self.assertIn("<title>coppeliusd</title>", service.get("/")[1])
        metrics = service.get("/metrics")[1]
        for name in ("build_info", "ready", "event_loop_lag_seconds", "http_requests_total", "raft_term",
                     "raft_is_leader", "raft_has_leader", "raft_leader_changes_total", "raft_log_last_index",
                     "raft_commit_index", "raft_applied_index", "raft_proposals_total", "members", "jobs",
                     "checkpoints_total", "checkpoint_bytes_total"):
            self.assertIn(f"# TYPE coppelius_{name} ", metrics)
        if shutil.which("promtool"):
            done = subprocess.run(["promtool", "check", "metrics"], input=metrics, text=True, capture_output=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        else:
            print("skipped: promtool check metrics (no promtool here)", file=sys.stderr)
        self.assertEqual(service.end(signal.SIGINT), 0)

    def test_it_works_as_the_first_process_of_a_container(self):
        if not shutil.which("unshare") or subprocess.run(["unshare", "-fpm", "--mount-proc", "--kill-child", "true"],
                                                         capture_output=True, check=False).returncode:
            print("skipped: pid 1 (no namespaces here)", file=sys.stderr)
            return
        service = self.service()
        service.start("unshare", "-fpm", "--mount-proc", "--kill-child")
        self.assertTrue(service.hear("READY=1"), service.text())
        with open(f"/proc/{service.process.pid}/task/{service.process.pid}/children") as file:
            inside = int(file.read().split()[0])
        os.kill(inside, signal.SIGTERM)
        self.assertEqual(service.process.wait(15), 0, service.text())
        self.assertIn("daemon.stopped", service.text())

    def test_two_signals_in_a_row_end_it_as_well(self):
        service = self.ready()
        service.process.send_signal(signal.SIGTERM)
        service.process.send_signal(signal.SIGINT)
        self.assertEqual(service.end(), 0)

    def test_a_signal_at_any_moment_of_the_start_ends_it(self):
        for delay_ms in (0, 5, 20, 60, 150):
            service = self.service()
            service.start()
            time.sleep(delay_ms / 1000)
            status = service.end()
            # Before the handler is there the signal's own end is right: nothing was begun.
            self.assertIn(status, (0, -signal.SIGTERM), service.text())

    def test_killed_and_started_again_it_goes_on(self):
        service = self.service()
        for _ in range(3):
            service.said.clear()
            service.start()
            self.assertTrue(service.hear("READY=1"), service.text())
            service.end(signal.SIGKILL)
        service.said.clear()
        service.start()
        self.assertTrue(service.hear("READY=1"), service.text())
        self.assertEqual(service.end(), 0)

    def test_bad_options_and_files_are_refused_with_status_2(self):
        self.refused(2, "no such option: --bogus", ["--bogus"])
        self.refused(2, "an argument that is no option: x", ["x"])
        self.refused(2, "a value is missing after --config", ["--config"])
        self.refused(2, "cannot be opened: No such file or directory", ["--config", "/nonexistent"])
        self.refused(2, 'coppeliusd.yaml:3:10: threads: expected a whole number, got "x"', threads="x")
        self.refused(2, "insecure: yes", listen="0.0.0.0:7999")
        self.refused(2, "its parent folder is not there", state_dir="/nonexistent/a/b")

    def test_a_taken_port_socket_or_folder_is_named(self):
        first = self.ready()
        self.refused(2, f"http.listen: port {first.http_port} of 127.0.0.1 is taken",
                     http=f"{{listen: 127.0.0.1:{first.http_port}}}")
        self.refused(5, str(first.port), listen=f"127.0.0.1:{first.port}")
        self.refused(2, "another daemon listens there", socket=f"{first.folder}/ctl.sock")
        self.refused(1, f"is in use by another daemon (pid {first.process.pid})",
                     state_dir=f"{first.folder}/state")
        self.assertEqual(first.get("/healthz")[0], 200)  # Nobody disturbed it.
        self.assertEqual(first.end(), 0)

    def test_a_state_folder_of_somebody_else_is_refused_and_left_alone(self):
        first = self.ready()
        self.assertEqual(first.end(), 0)
        state = f"{first.folder}/state"
        path = f"{state}/node.json"

        def put(text):
            with open(path, "w") as file:
                file.write(text)

        with open(path) as file:
            before = file.read()
        self.refused(1, "belongs to node 'a' of cluster 'coppelius', not to 'b'", name="b", state_dir=state)
        self.refused(1, "belongs to node 'a' of cluster 'coppelius', not to 'a' of 'x'", cluster="x",
                     state_dir=state)
        with open(path) as file:
            self.assertEqual(file.read(), before)
        put(json.dumps({**json.loads(before), "format": 99}))
        self.refused(1, "has format 99, this version knows 1", state_dir=state)
        put("{")
        self.refused(7, "cannot be read", state_dir=state)
        os.remove(path)
        self.refused(1, "has a log but no node.json", state_dir=state)

    def test_a_gpu_that_is_not_there_is_never_replaced_by_the_cpu(self):
        if os.path.exists("/dev/nvidia0"):
            print("skipped: no GPU (there is one here)", file=sys.stderr)
            return
        service = self.service(device="auto")
        service.start()
        self.assertTrue(service.logs("failed reason="), service.text())
        self.assertFalse(service.hear("READY=1", seconds=0.3), service.text())
        if service.process.poll() is None:
            self.assertEqual(service.get("/readyz")[0], 503)
            self.assertEqual(service.end(), 0)
        else:
            self.assertNotEqual(service.process.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
