"""What the lines of docs/clients.md need of nats-py, with its signatures and defaults.

The test puts it in the place of the module nats, so that the lines run without
a package registry. It is no client: it does not reconnect, and knows no TLS.
"""

import asyncio
import errno
import json
import uuid


class Msg:
    def __init__(self, subject, data):
        self.subject, self.data = subject, data


class Subscription:
    def __init__(self, queue):
        self._queue = queue

    async def next_msg(self, timeout=1.0):
        return await asyncio.wait_for(self._queue.get(), timeout)


class Client:
    async def _dial(self, host, port):
        self._reader, self._writer = await asyncio.open_connection(host, port)
        info = (await self._reader.readline()).split(b" ", 1)
        if info[0] != b"INFO":
            raise ConnectionError(errno.EPROTO, f"not a NATS server: {info}")
        self._queues = {}
        self._send(b"CONNECT " + json.dumps({"verbose": False, "lang": "test", "version": "0", "protocol": 1}).encode())
        self._reading = asyncio.create_task(self._read())

    def _send(self, line, payload=None):
        self._writer.write(line + b"\r\n" + (b"" if payload is None else payload + b"\r\n"))

    async def _read(self):
        while line := (await self._reader.readline()).strip():
            word, *rest = line.split(b" ")
            if word == b"MSG":  # subject, sid, perhaps a reply subject, bytes
                data = (await self._reader.readexactly(int(rest[-1]) + 2))[:-2]
                self._queues[int(rest[1])].put_nowait(Msg(rest[0].decode(), data))
            elif word == b"PING":
                self._send(b"PONG")
            elif word == b"-ERR":
                raise ConnectionError(errno.EPROTO, line.decode())

    async def subscribe(self, subject):
        sid = len(self._queues) + 1
        self._queues[sid] = asyncio.Queue()
        self._send(b"SUB %b %d" % (subject.encode(), sid))
        return Subscription(self._queues[sid])

    async def request(self, subject, payload=b"", timeout=0.5):
        inbox = "_INBOX." + uuid.uuid4().hex
        answer = await self.subscribe(inbox)
        self._send(b"PUB %b %b %d" % (subject.encode(), inbox.encode(), len(payload)), payload)
        return await answer.next_msg(timeout)

    async def close(self):
        self._reading.cancel()
        self._writer.close()
        await self._writer.wait_closed()


async def connect(servers="nats://localhost:4222"):
    host, port = servers.removeprefix("nats://").split(":")
    nc = Client()
    await nc._dial(host, int(port))
    return nc
