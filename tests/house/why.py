"""Tells from the log of a step of ./check why it failed, in as many lines as it takes.

    why.py build LOG   the sentences of cmake, the compiler and the linker; the log's end where it has none of them
    why.py fuzz LOG    the start of the report and the saved input in base64
    why.py ctest LOG   each failed test's own words: the whole output where it is short, else every assertion, traceback
                       and report of a sanitizer in it, and its end
"""
import base64
import os
import re
import sys

LINES_MAX = 60      # of a build's sentences, of a test's output
END = 15            # lines of a log's end
REPORT = 12         # lines of a fuzzer's report
BLOCK = 25          # lines of an assertion with what follows it
INPUT_MAX = 1 << 16  # a larger input is named only

BUILD = re.compile(
    r"\berror\b|\bError\b|[Uu]ndefined (reference|symbol)|multiple definition|duplicate symbol|cannot find -l|No rule to make"
    r"|\bld(\.\w+)?: |\bcollect2: |\(missing: |^FAILED: |^ninja: |not found$|No space left|Killed", re.M)
# What cmake says stands in the lines below its head.
CMAKE = re.compile(r"^CMake Error")
REPORT_BEGIN = re.compile(r"ERROR: \w+|: runtime error: |assert\.failed |Assertion .* failed")
SAVED = re.compile(r"Test unit written to (\S+)")
TEST = re.compile(r"^ *(?:\d+/\d+)? +Test +#\d+: (\S+) .*?(\*\*\*\S[^\d]*|Passed)")
CLAIM = re.compile(r":\d+:[FE]:|assert\.failed |^FAILED: |^(FAIL|ERROR): |^Traceback |Assertion .*failed|: runtime error: "
                   r"|(ERROR|WARNING): \w+Sanitizer|^AssertionError|terminate called|Segmentation fault")
# The start of what is not the test's: the next test, the list at the end.
NEXT = re.compile(r"^ *Start +\d+: |^ *(\d+/\d+)? +Test +#\d+: |^\d+% tests passed|^Label Time Summary|^Errors while running")


def tail(lines, count):
    return lines[-count:] if count else []


def build(lines):
    chosen = []
    below = 0
    for line in lines:
        if CMAKE.search(line):
            below = 6
        # A step's head names files, of which one may be called error; its command is long and says nothing.
        if re.match(r"\[\d+/\d+\] ", line) or re.match(r"\S*(ccache|clang|cc|gcc|cmake) .{300}", line):
            continue
        if BUILD.search(line) or (below > 0 and line.strip()):
            chosen.append(line[:500])
        below -= 1
    return chosen[:LINES_MAX] or tail(lines, END)


def fuzz(lines):
    begin = next((i for i, line in enumerate(lines) if REPORT_BEGIN.search(line)), None)
    told = tail(lines, REPORT) if begin is None else lines[begin:begin + REPORT]
    saved = [match.group(1) for match in map(SAVED.search, lines) if match]
    for path in saved:
        told.append(f"input: {path}")
        try:
            size = os.path.getsize(path)
            if size > INPUT_MAX:
                told.append(f"base64: left out, it has {size} bytes")
                continue
            with open(path, "rb") as f:
                told.append("base64: " + base64.b64encode(f.read()).decode())
        except OSError as e:
            told.append(f"base64: {e}")
    if not saved:
        told.append("input: none was saved")
    return told


def blocks(lines):
    """The lines of every claim that did not hold, each with what follows it up to an empty line, and the end."""
    keep = set(range(max(0, len(lines) - END), len(lines)))
    for i, line in enumerate(lines):
        if not CLAIM.search(line):
            continue
        for j in range(i, min(i + BLOCK, len(lines))):
            if j > i + 1 and not lines[j].strip():
                break
            keep.add(j)
    told = []
    for i in sorted(keep):
        if told and i - 1 not in keep:
            told.append("…")
        told.append(lines[i])
    return told


def ctest(lines):
    """What each test said at its last try that failed; one that passed at the second try is told too."""
    outputs = {}
    name, output = None, []
    for line in lines + ["100% tests passed"]:
        head = TEST.match(line)
        if head or NEXT.match(line):
            if name is not None:
                outputs[name] = output
            name = None
        if head:
            if head.group(2) != "Passed" and not head.group(2).startswith("***Skipped"):
                name, output = head.group(1), [line.strip()]
        elif name is not None:
            output.append(line)
    told = []
    for output in outputs.values():
        while output and not output[-1].strip():
            output.pop()
        if len(output) > LINES_MAX:
            output = output[:1] + blocks(output[1:])
        told += ["", *output]
    return told


def main():
    kinds = {"build": build, "fuzz": fuzz, "ctest": ctest}
    if len(sys.argv) != 3 or sys.argv[1] not in kinds:
        sys.exit(f"usage: why.py {'|'.join(kinds)} LOG")
    with open(sys.argv[2], encoding="utf-8", errors="replace") as f:
        lines = f.read().splitlines()
    for line in kinds[sys.argv[1]](lines):
        print(line)


if __name__ == "__main__":
    main()
