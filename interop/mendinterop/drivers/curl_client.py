"""HTTP/3 client on unmodified libcurl with ngtcp2, through curl_cffi. One multi handle keeps TLS sessions between rounds.
With PIPEWAIT the transfers of a round share a connection, with FRESH_CONNECT each round opens a new one."""

import asyncio

from curl_cffi import AsyncCurl, AsyncSession, CurlHttpVersion, CurlMOpt, CurlOpt

from mendinterop.task import Task, drive, response

PARALLEL = 256


async def run_rounds(task: Task, rounds: list[dict]) -> None:
    multi = AsyncCurl()
    multi.setopt(CurlMOpt.MAX_CONCURRENT_STREAMS, PARALLEL)
    address = f"[{task.address}]" if ":" in task.address else task.address
    options = {
        CurlOpt.RESOLVE: [f"{task.host}:{task.port}:{address}".encode()],
        CurlOpt.PIPEWAIT: 1,
        CurlOpt.CAINFO: task.ca.encode(),
    }
    async with AsyncSession(
        async_curl=multi, http_version=CurlHttpVersion.V3ONLY, verify=task.ca, curl_options=options, max_clients=PARALLEL, timeout=120
    ) as session:

        async def get(path: str) -> dict:
            answer = await session.get(task.url(path))
            if answer.http_version != CurlHttpVersion.V3:
                raise RuntimeError(f"{path} came over HTTP version {answer.http_version}")
            return response(path, answer.status_code, answer.content)

        for index, paths in enumerate(task.rounds):
            if index > 0:
                options[CurlOpt.FRESH_CONNECT] = 1
            responses = await asyncio.gather(*(get(path) for path in paths))
            rounds.append({"alpn": "h3", "responses": list(responses)})
            await asyncio.sleep(task.linger_ms / 1000)


if __name__ == "__main__":
    drive(lambda task, rounds: asyncio.run(run_rounds(task, rounds)))
