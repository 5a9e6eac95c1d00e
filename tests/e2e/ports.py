"""Ports that are a test program's own until it ends, also beside other tests and when their daemon is down: from
below the range that the kernel gives to connections, each held by a lock on a file of its own, as tests/lib/ports.h
does. (A port that bind(0) gave is anybody's again once it is closed.)"""
import fcntl
import os
import random
import socket

FIRST, END = 20000, 32768  # Linux' ip_local_port_range begins there
locks = {}  # port: its open file, until it is released or this process ends; daemons do not inherit them


def is_free(port, host):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            return True
        except OSError:
            return False


def release(ports):
    for port in ports:
        if port in locks:
            locks.pop(port).close()


def free_ports(count, host="127.0.0.1"):
    folder = f"/tmp/coppelius-ports-{os.getuid()}"
    os.makedirs(folder, mode=0o700, exist_ok=True)
    ports = []
    candidates = range(FIRST, END)
    start = random.randrange(len(candidates))
    for i in range(len(candidates)):
        if len(ports) == count:
            return ports
        port = candidates[(start + i) % len(candidates)]
        lock = open(os.path.join(folder, str(port)), "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        if is_free(port, host):
            ports.append(port)
            locks[port] = lock
        else:
            lock.close()
    raise OSError(f"there are no {count} free ports from {FIRST} to {END}")
