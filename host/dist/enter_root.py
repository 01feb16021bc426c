#!/usr/bin/env python3
"""Runs a program with a folder as its root, and nothing else of this machine: no library, no shell, no other process.

    host/dist/enter_root.py [--user UID] FOLDER PROGRAM [ARGUMENT ...]

The program has /proc, the devices that every container has, and what is in the folder. Its environment is PATH, HOME=/home/user and TMPDIR=/tmp.
It needs root, or user namespaces. Unlike with chroot, the program can make namespaces of its own.
"""

import argparse
import ctypes
import os
import pathlib
import platform
import sys

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWIPC = 0x00020000, 0x10000000, 0x20000000, 0x08000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}[platform.machine()]
LIBC = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def mount(source, target, kind, flags):
    encoded = [text if text is None else os.fsencode(text) for text in (source, target, kind)]
    check(LIBC.mount(*encoded, ctypes.c_ulong(flags), None), f"mount {target}")


def main():
    arguments = argparse.ArgumentParser(description="Runs a program with a folder as its root.")
    arguments.add_argument("--user", type=int, default=0, help="the user that the program runs as, if this is root")
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("command", nargs=argparse.REMAINDER)
    given = arguments.parse_args()
    root = given.folder.resolve()
    for folder in ("proc", "dev", "tmp", "home/user"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for device in DEVICES:
        (root / "dev" / device).touch()
    user, group = os.getuid(), os.getgid()
    if user != 0:
        check(LIBC.unshare(CLONE_NEWUSER), "a user namespace")
        pathlib.Path("/proc/self/setgroups").write_text("deny")
        pathlib.Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        pathlib.Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    check(LIBC.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC), "namespaces")
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        sys.exit(os.waitstatus_to_exitcode(status) % 256)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount(str(root), str(root), None, MS_BIND | MS_REC)
    mount("proc", str(root / "proc"), "proc", 0)
    for device in DEVICES:
        mount(f"/dev/{device}", str(root / "dev" / device), None, MS_BIND)
    os.chdir(root)
    check(LIBC.syscall(PIVOT_ROOT, b".", b"."), "pivot_root")
    check(LIBC.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/home/user")
    if user == 0 and given.user:
        os.chown("/home/user", given.user, given.user)
        os.setgroups([])
        os.setgid(given.user)
        os.setuid(given.user)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/user", "TMPDIR": "/tmp"}
    os.execve(given.command[0], given.command, environment)


if __name__ == "__main__":
    main()
