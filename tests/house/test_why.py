"""What tests/house/why.py makes of logs as cmake, compilers, linkers, libFuzzer and ctest write them."""
import base64
import os
import subprocess
import sys
import tempfile
import unittest

WHY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "why.py")

LINKER = """[1/3] Building C object tests/CMakeFiles/error_test.dir/error.c.o
[2/3] Linking C executable daemon/coppeliusd
FAILED: daemon/coppeliusd
: && /usr/bin/cc -O2 CMakeFiles/coppeliusd.dir/main.c.o -o daemon/coppeliusd && :
/usr/bin/ld: CMakeFiles/coppeliusd.dir/main.c.o: in function `main':
main.c:(.text+0x5): undefined reference to `daemon_open'
/usr/bin/ld: cannot find -luv: No such file or directory
collect2: error: ld returned 1 exit status
ninja: build stopped: subcommand failed.
"""
COMPILER = "[1/3] Building C object a.o\n/a/b.c:3:5: error: implicit declaration of function 'f'\n"
CMAKE = """CMake Error at cmake/libraries.cmake:7 (message):
  libuv is not there; install libuv1-dev


-- Configuring incomplete, errors occurred!
"""
FUZZER = """INFO: Seed: 1
#2 INITED cov: 9
/a/json.c:12:3: runtime error: index 9 out of bounds for type 'char[4]'
==7== ERROR: libFuzzer: deadly signal
    #0 0x1 in __sanitizer_print_stack_trace
    #1 0x2 in json_parse daemon/json.c:12
{frames}
SUMMARY: libFuzzer: deadly signal
MS: 1 ChangeBit-; base unit: adc8
artifact_prefix='build/'; Test unit written to {path}
"""
CTEST = """Test project build/release
      Start  1: unit/peer/test_fetch
      Start  2: unit/base/test_log
 1/3 Test  #1: unit/peer/test_fetch .....***Failed    0.11 sec
Running suite(s): fetch
85%: Checks: 7, Failures: 1, Errors: 0
/a/test_fetch.c:213:F:fetch:bytes_come:0: Assertion 'stats.bytes_out >= PART_SIZE' failed: 70000 < 3145728
second line of it

      Start  1: unit/peer/test_fetch
 2/3 Test  #2: unit/base/test_log .......   Passed    0.01 sec
      Start  3: e2e/test_kill
      Test  #1: unit/peer/test_fetch .....   Passed    0.10 sec
 3/3 Test  #3: e2e/test_kill ............***Failed    9.01 sec
{noise}
Traceback (most recent call last):
  File "test_kill.py", line 9, in <module>
    claim()
AssertionError: epoch 3 is torn

{noise}
FAILED: the job goes on: paused
{noise}
12 claims hold, 1 do not

66% tests passed, 1 tests failed out of 3

The following tests FAILED:
\t  3 - e2e/test_kill (Failed)
"""


def why(kind, text):
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        log.write(text)
        log.flush()
        return subprocess.run([sys.executable, WHY, kind, log.name], check=True, capture_output=True, text=True).stdout


class Why(unittest.TestCase):
    def test_a_link_that_fails_is_told_in_the_linkers_words(self):
        told = why("build", LINKER)
        for sentence in ("undefined reference to `daemon_open'", "cannot find -luv", "in function `main'", "FAILED: daemon/coppeliusd"):
            self.assertIn(sentence, told)
        self.assertNotIn("Building C object", told)

    def test_a_compilers_and_cmakes_errors_are_told(self):
        self.assertEqual(why("build", COMPILER), "/a/b.c:3:5: error: implicit declaration of function 'f'\n")
        self.assertIn("libuv is not there; install libuv1-dev", why("build", CMAKE))

    def test_a_build_without_such_a_sentence_shows_its_end(self):
        told = why("build", "".join(f"line {i}\n" for i in range(40)))
        self.assertEqual(told.splitlines(), [f"line {i}" for i in range(25, 40)])

    def test_a_finding_shows_the_start_of_its_report_and_its_input(self):
        with tempfile.NamedTemporaryFile() as saved:
            saved.write(b"\0[1,\xff")
            saved.flush()
            told = why("fuzz", FUZZER.format(path=saved.name, frames="    #9 more\n" * 40))
        self.assertIn("index 9 out of bounds", told)
        self.assertIn("ERROR: libFuzzer: deadly signal", told)
        self.assertIn("json_parse daemon/json.c:12", told)
        self.assertEqual(told.count("#9 more"), 8)
        self.assertIn(base64.b64encode(b"\0[1,\xff").decode(), told)
        self.assertNotIn("INITED", told)

    def test_a_fuzzer_that_saved_nothing_says_so(self):
        self.assertIn("input: none was saved", why("fuzz", "killed\n"))
        self.assertIn("No such file", why("fuzz", FUZZER.format(path="absent/crash-1", frames="")))

    def test_each_failed_test_says_all_of_its_assertions(self):
        told = why("ctest", CTEST.format(noise="\n".join(f"noise {i}" for i in range(50))))
        # It passed at the second try: what it said at the first is what is wanted.
        self.assertIn("failed: 70000 < 3145728\nsecond line of it", told)
        self.assertIn("AssertionError: epoch 3 is torn", told)
        self.assertIn('File "test_kill.py", line 9', told)
        self.assertIn("FAILED: the job goes on: paused", told)
        self.assertIn("12 claims hold, 1 do not", told)
        self.assertNotIn("test_log", told)
        self.assertNotIn("tests passed", told)
        self.assertLess(told.count("noise"), 100)

    def test_a_suite_that_passed_says_nothing(self):
        self.assertEqual(why("ctest", "1/1 Test #1: a ....   Passed    0.01 sec\n\n100% tests passed\n").strip(), "")


unittest.main()
