"""A small proxy for TCP that delays what it carries: every byte leaves so many milliseconds after it came, each way."""
import asyncio
import threading


class DelayProxy:
    """with DelayProxy({7001: ("127.0.0.1", 8001)}, 0.05): a listener on 127.0.0.1 for each port."""

    def __init__(self, ways, seconds, host="127.0.0.1"):
        self.ways, self.seconds, self.host = ways, seconds, host
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        if not self.ready.wait(10):
            raise RuntimeError("the proxy does not listen")
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    def run(self):
        asyncio.set_event_loop(self.loop)
        for port, target in self.ways.items():
            self.loop.run_until_complete(asyncio.start_server(
                lambda reader, writer, target=target: self.carry(reader, writer, target), self.host, port))
        self.ready.set()
        self.loop.run_forever()
        carried = asyncio.all_tasks(self.loop)
        for task in carried:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*carried, return_exceptions=True))

    async def carry(self, reader, writer, target):
        try:
            there, back = await asyncio.open_connection(*target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self.pump(reader, back), self.pump(there, writer))

    async def pump(self, reader, writer):
        queue = asyncio.Queue()

        async def leave():
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - self.loop.time()))
                try:
                    if data:
                        writer.write(data)
                        await writer.drain()
                        continue
                    writer.write_eof()
                except OSError:
                    pass
                return
        task = asyncio.ensure_future(leave())
        data = b"."
        while data:
            try:
                data = await reader.read(1 << 16)
            except OSError:
                data = b""
            queue.put_nowait((self.loop.time() + self.seconds, data))
        await task
        writer.close()
