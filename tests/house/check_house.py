"""What the compiler does not see of the house's rules. One rule a run:

    check_house.py includes   a room includes its own headers and the doors of rooms that it stands on, no more
    check_house.py sizes      a source file has one noun: at most 600 lines (a test, which is a list of claims, 800),
                              unless it is listed here with a reason
    check_house.py documents  what is written into the JSON documents is named in proto/documents.md; each metric that
                              docs/operations.md has is exported
    check_house.py clocks     the wall clock, which somebody may set, is read where dates are meant, and nowhere else
    check_house.py words      nothing left undone, no place of one person's machine, no stranger's address

Each breach is a line file:line: sentence; the exit status is 1 where there is one.
"""
import os
import re
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SOURCES = (".c", ".h", ".cu")
TEXTS = SOURCES + (".py", ".sh", ".md", ".txt", ".cmake", ".proto", ".yaml", ".yml", ".json", ".service")
OUTSIDE = {"build", ".git", "corpus"}

STANDS_ON = {  # what the README's table and each room's CMakeLists.txt say
    "base": "", "trust": "base", "proto": "base", "numerics": "base", "data": "base numerics", "gpu": "base numerics",
    "learn": "base numerics data gpu", "peer": "base trust proto numerics", "control": "base proto",
    "checkpoint": "base proto control", "ctl": "base trust proto data control checkpoint",
    "daemon": "base trust proto numerics data gpu learn peer control checkpoint"}
SHELVES = {"base", "proto", "numerics"}  # any header
DOORS = {"data/data.h", "gpu/gpu.h", "learn/learn.h", "peer/peer.h", "checkpoint/checkpoint.h",
         # control has two sides, the log and what is agreed in it, and a real environment beside the simulated one
         "control/control.h", "control/env_uv.h", "control/state.h", "control/coordinator.h", "control/survive.h",
         # data that are on another node, and where they are kept: used by the corridor alone
         "data/share.h", "data/cache.h", "peer/fetch.h",
         # what the lines between nodes are like: used by the pre-flight alone
         "peer/probe.h",
         # who may speak, and what makes it so
         "trust/trust.h", "trust/authority.h", "trust/join.h"}

LINES_MAX = 600
TEST_LINES_MAX = 800
LONGER = {}  # file: reason

WALL_CLOCK = {  # file: what it wants of the wall clock
    "base/clock.c": "clock_wall_ms()", "daemon/vitals.c": "the process's start, as Prometheus has it",
    "daemon/doctor.c": "whether it is set at all", "daemon/renew.c": "a certificate's end", "daemon/tell_trust.c": "the same",
    "trust/authority.c": "certificates' and tokens' dates", "trust/issue.c": "the same", "trust/token.c": "the same",
    "trust/trust.c": "the same", "trust/trust_verify.c": "the same"}


def files(endings):
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(f for f in folders if f not in OUTSIDE and not f.startswith("build"))
        for name in sorted(names):
            if name.endswith(endings):
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def lines(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as f:
        return f.read().splitlines()


def includes():
    for path in files(SOURCES):
        room = path.split(os.sep)[0]
        if room not in STANDS_ON:
            continue  # tests may look into any room
        for number, line in enumerate(lines(path), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match:
                continue
            header = match.group(1)
            other = header.split("/")[0]
            if "/" not in header:
                yield path, number, f"'{header}': spell includes from the root"
            elif other == room:
                continue
            elif other not in STANDS_ON[room].split():
                yield path, number, f"'{header}': {room} does not stand on {other}"
            elif other not in SHELVES and header not in DOORS:
                yield path, number, f"'{header}' is private to {other}; include its door"


def most_lines(path):
    return TEST_LINES_MAX if path.startswith("tests" + os.sep) else LINES_MAX


def sizes():
    for path in files(SOURCES + (".py",)):
        count = len(lines(path))
        most = most_lines(path)
        if count > most and path not in LONGER:
            yield path, count, f"{count} lines; the most is {most}: split it by noun"
    for path in LONGER:
        if not os.path.exists(os.path.join(ROOT, path)) or len(lines(path)) <= most_lines(path):
            yield path, 1, "is listed as long, and is not"


def clocks():
    wall = re.compile(r"\bCLOCK_REALTIME\b|\btime\(NULL\)|\bgettimeofday\b|\bTIME_UTC\b|\b(?:sem|mq)_timed\w+|\bpthread_mutex_timedlock\b"
                      r"|\bpthread_cond_init\(.*, NULL\)")
    for path in files((".c", ".h")):
        if path.split(os.sep)[0] not in STANDS_ON or path in WALL_CLOCK:
            continue
        text = lines(path)
        timed = any("cond_timedwait" in line for line in text)  # else its conditions may be of any clock
        for number, line in enumerate(text, 1):
            match = wall.search(line)
            if match and (timed or "cond_init" not in match.group(0)):
                yield path, number, f"'{match.group(0)}': the wall clock decides nothing; base/clock.h has the other"
    for path in WALL_CLOCK:
        if not any(wall.search(line) for line in lines(path)):
            yield path, 1, "is listed with a use of the wall clock, and has none"


def words():
    undone = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|@[A-Z]{3,}@")
    place = re.compile(r"(?<![\w.])/(work|root|Users)/\w|(?<![\w.])/home/(?!u/)\w")
    address = re.compile(r"\b(?:[a-z]+://)?(\d{1,3}(?:\.\d{1,3}){3})\b")
    host = re.compile(r"https?://([^/\s)>\"'$:]+)")
    hosts = {"127.0.0.1", "github.com", "www.apache.org", "www.w3.org", "archive.ics.uci.edu", "creativecommons.org",
             "www.openml.org", "cran.r-project.org", "www.csie.ntu.edu.tw"}
    # loopback, any, broadcast, the documentation's and private ranges, version numbers
    ours = re.compile(r"^(127|0|255|10|192\.168|172\.(1[6-9]|2\d|3[01])|192\.0\.2|198\.51\.100|203\.0\.113)\.")
    for path in files(TEXTS):
        if os.path.basename(path) == "LICENSE":
            continue
        for number, line in enumerate(lines(path), 1):
            if len(line) > 2000:
                continue  # data
            for pattern, what in ((undone, "left undone"), (place, "a place of one machine")):
                match = pattern.search(line)
                if match:
                    yield path, number, f"'{match.group(0)}': {what}"
            for match in host.finditer(line):
                if match.group(1) not in hosts:
                    yield path, number, f"'{match.group(1)}': a host that is not listed in tests/house/check_house.py"
            for match in address.finditer(line):
                if not ours.match(match.group(1) + ".") and all(int(n) < 256 for n in match.group(1).split(".")):
                    yield path, number, f"'{match.group(1)}': an address of somebody"


def documents():
    named = set(re.findall(r"`(\w+)`", "\n".join(lines("proto/documents.md"))))
    for path in files((".c",)):
        if not os.path.basename(path).startswith("documents") or not path.startswith("daemon"):
            continue
        for number, line in enumerate(lines(path), 1):
            for name in re.findall(r'\bset\(\w+, "(\w+)"', line):
                if name not in named:
                    yield path, number, f"'{name}' is written and not in proto/documents.md"
    code = "\n".join("\n".join(lines(path)) for path in ("daemon/metrics.c", "daemon/exposition.c", "daemon/vitals.c"))
    for number, line in enumerate(lines("docs/operations.md"), 1):
        first = line.split("|")[1] if line.startswith("| `") else ""
        kind = line.split("|")[2] if line.count("|") >= 5 else ""
        if not re.search("gauge|counter|histogram", kind):
            continue
        for name in re.findall(r"`([a-z_]+)`", first):
            if f'"{name}"' not in code:
                yield "docs/operations.md", number, f"the metric '{name}' is not exported"


def main():
    rules = {"includes": includes, "sizes": sizes, "clocks": clocks, "words": words, "documents": documents}
    if len(sys.argv) != 2 or sys.argv[1] not in rules:
        sys.exit(f"usage: check_house.py {'|'.join(rules)}")
    breaches = list(rules[sys.argv[1]]())
    for path, number, sentence in breaches:
        print(f"{path}:{number}: {sentence}")
    print(f"{len(breaches)} breaches of '{sys.argv[1]}'")
    sys.exit(1 if breaches else 0)


main()
