"""The manual pages that the build made have all that the programs' own help and configuration have, and are right for
man(1). COPPELIUS_BIN is the build's folder."""
import os
import re
import shutil
import subprocess
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN = os.environ.get("COPPELIUS_BIN") or os.path.join(ROOT, "build", "release")


def page(path):
    with open(os.path.join(BIN, path), encoding="utf-8") as f:
        return f.read().replace("\\-", "-").replace("\\e", "\\")


def said(program, *arguments):
    return subprocess.run([os.path.join(BIN, program), *arguments], capture_output=True, text=True, check=True).stdout


class Man(unittest.TestCase):
    def test_coppeliusctl_has_every_command_and_its_flags(self):
        text = page("ctl/coppeliusctl.1")
        parts = dict(re.findall(r"^\.SS coppeliusctl ([a-z]+(?: [a-z]+)?)(?= \[|$| [A-Z]| [a-z]+\|)[^\n]*\n(.*?)(?=^\.S[SH])", text, re.M | re.S))
        listed = re.findall(r"^  ([a-z]+(?: [a-z]+)?) .*", said("ctl/coppeliusctl", "help").split("Global flags:")[0], re.M)
        self.assertGreater(len(listed), 30)
        for command in listed:
            name = next((n for n in (command, command.split()[0]) if n in parts), None)
            self.assertIsNotNone(name, f"'{command}' is not in {sorted(parts)}")
            help_text = said("ctl/coppeliusctl", "help", *name.split())
            self.assertIn(help_text.splitlines()[0], parts[name])
            for flag in re.findall(r"^  (?:-\w, )?(--[a-z-]+)", help_text.split("Global flags:")[0], re.M):
                self.assertIn(flag, parts[name], name)
        for flag in re.findall(r"(--[a-z-]+)", said("ctl/coppeliusctl", "help").split("Global flags:")[1].split("Exit")[0]):
            self.assertIn(flag, text)

    def test_coppeliusd_has_every_option_and_key(self):
        text = page("daemon/coppeliusd.8")
        for line in said("daemon/coppeliusd", "--help").splitlines():
            self.assertIn(line, text)
        keys = re.findall(r"^([a-z_.]+)(?:\[\d+\])?", said("daemon/coppeliusd", "--show-config"), re.M)
        self.assertGreater(len(keys), 20)
        for key in keys:
            self.assertIn(f"\n.B {key}\n", text)

    def test_man_has_nothing_to_say_of_them(self):
        if not shutil.which("groff"):
            print("skipped: man's view of the pages (no groff here)", file=sys.stderr)
            return
        for path in ("ctl/coppeliusctl.1", "daemon/coppeliusd.8"):
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", os.path.join(BIN, path)], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


unittest.main()
