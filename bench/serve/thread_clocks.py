"""What the threads of a process used of the processor, and what its TCP connections carried, from the kernel's own
counters. Linux."""
import contextlib
import os
import pathlib
import socket
import struct
import time

# linux/sock_diag.h, linux/inet_diag.h and linux/tcp.h
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR, NLMSG_DONE = 2, 3
INET_DIAG_INFO = 2
ALL_STATES = 0xFFFFFFFF
MESSAGE_HEADER = struct.Struct("=IHHII")
INODE_AT, ATTRIBUTES_AT = 68, 72  # in struct inet_diag_msg
COUNTERS_AT = 120                 # in struct tcp_info: tcpi_bytes_acked, tcpi_bytes_received


def thread_use(process, engine="engine"):
    """(seconds on a processor, times that it began to run) of each thread of the process, a folder in /proc, by the
    thread's name; the sums of those with equal names. The main thread is the engine where no other has this name, and has
    the program's name otherwise; "unnamed" are those that have the main thread's name because nobody gave them one."""
    use, names = {}, {}
    for task in (process / "task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            names[task.name] = (task / "comm").read_text(encoding="utf-8").strip()
            nanoseconds, _, runs = map(int, (task / "schedstat").read_text(encoding="utf-8").split())
            use[task.name] = (nanoseconds / 1e9, runs)
    main = process.name
    inherited = names[main]
    of_engine = [thread for thread, name in names.items() if name == engine and thread != main]
    sums = {}
    for thread, (seconds, runs) in use.items():
        name = names[thread]
        if thread == main:
            name = engine if inherited == engine or not of_engine else inherited
        elif name == inherited:
            name = "unnamed"
        before = sums.get(name, (0, 0))
        sums[name] = (before[0] + seconds, before[1] + runs)
    return sums


def tcp_counters():
    """(received, sent and acknowledged) bytes of each TCP connection of this network namespace, by its inode."""
    counters = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as channel:
        for family in (socket.AF_INET, socket.AF_INET6):
            request = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, ALL_STATES)
            channel.send(MESSAGE_HEADER.pack(MESSAGE_HEADER.size + len(request), SOCK_DIAG_BY_FAMILY,
                                             NLM_F_REQUEST_DUMP, 1, 0) + request)
            while take_messages(channel.recv(1 << 18), counters):
                pass
    return counters


def take_messages(data, counters):
    """Whether more of the dump follows."""
    at = 0
    while at < len(data):
        length, kind, *_ = MESSAGE_HEADER.unpack_from(data, at)
        if kind in (NLMSG_DONE, NLMSG_ERROR):
            return False
        take_connection(data[at + MESSAGE_HEADER.size:at + length], counters)
        at += (length + 3) & ~3
    return True


def take_connection(message, counters):
    inode, = struct.unpack_from("=I", message, INODE_AT)
    at = ATTRIBUTES_AT
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if kind == INET_DIAG_INFO and length >= 4 + COUNTERS_AT + 16:
            sent, received = struct.unpack_from("=QQ", message, at + 4 + COUNTERS_AT)
            counters[inode] = (received, sent)
        at += max((length + 3) & ~3, 4)


def inodes_of(process):
    """Of the open sockets of the process, a folder in /proc."""
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(OSError):
            name = os.readlink(descriptor)
            if name.startswith("socket:["):
                yield int(name[len("socket:["):-1])


class Snapshot:
    """Of one process, a folder in /proc. `tcp`: tcp_counters() of the same moment."""

    def __init__(self, process, tcp):
        self.use = thread_use(process)
        self.tcp = {inode: tcp[inode] for inode in inodes_of(process) if inode in tcp}

    def since(self, before):
        """({thread: (seconds, runs)}, received bytes, sent bytes) since an earlier snapshot of the process. Connections
        that closed in between are not in it."""
        use = {}
        for name, (seconds, runs) in self.use.items():
            seconds_before, runs_before = before.use.get(name, (0, 0))
            use[name] = (seconds - seconds_before, runs - runs_before)
        received, sent = (sum(now[which] - before.tcp.get(inode, (0, 0))[which] for inode, now in self.tcp.items())
                          for which in (0, 1))
        return use, received, sent


def snapshots(processes):
    """By name, of processes by name."""
    tcp = tcp_counters()
    return {name: Snapshot(process, tcp) for name, process in processes.items()}


def self_test():
    """Checks the counters on this process and a connection with itself."""
    me = pathlib.Path("/proc/self").resolve()
    with socket.create_server(("127.0.0.1", 0)) as server, \
            socket.create_connection(server.getsockname()) as client, server.accept()[0] as accepted:
        before = snapshots({"me": me})["me"]
        client.sendall(b"x" * 100000)
        left = 100000
        while left:
            left -= len(accepted.recv(left))
        accepted.sendall(b"y" * 1000)
        left = 1000
        while left:
            left -= len(client.recv(left))
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            pass
        time.sleep(0.001)
        use, received, sent = snapshots({"me": me})["me"].since(before)
    assert received == 101000, received
    assert 100000 <= sent <= 101000, sent  # what is not acknowledged yet is missing
    seconds, runs = use["engine"]
    assert 0.05 < seconds < 1, seconds
    assert runs >= 1, runs


if __name__ == "__main__":
    self_test()
