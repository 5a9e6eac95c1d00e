"""What the tests' ports promise (tests/e2e/ports.py, and tests/lib/ports.h with the same locks)."""
import os
import subprocess
import sys
import unittest

E2E = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e")
sys.path.insert(0, E2E)
import ports  # noqa: E402

HOLDER = "import sys; sys.path.insert(0, sys.argv[1]); import ports; print(*ports.free_ports(60), flush=True); sys.stdin.read()"


class Ports(unittest.TestCase):
    def test_programs_at_the_same_time_have_different_ones(self):
        # All begin to look at the same place: without the locks they would take the same.
        crowd = "import random; random.randrange = lambda count: 0; " + HOLDER
        holders = [subprocess.Popen([sys.executable, "-c", crowd, E2E], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                   for _ in range(4)]
        held = [int(port) for holder in holders for port in holder.stdout.readline().split()]
        for holder in holders:
            holder.communicate("")
        self.assertEqual(len(held), 240)
        self.assertEqual(len(set(held)), 240)

    def test_none_is_one_that_the_kernel_gives_to_connections(self):
        with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
            low, high = map(int, f.read().split())
        taken = ports.free_ports(5)
        if low <= ports.FIRST:
            print("skipped: this kernel gives away all ports from", low)
        else:
            self.assertFalse([port for port in taken if low <= port <= high])
        ports.release(taken)

    def test_a_released_port_can_be_had_again(self):
        for _ in range(300):
            ports.release(ports.free_ports(8))
        self.assertEqual(len(ports.locks), 0)


unittest.main()
