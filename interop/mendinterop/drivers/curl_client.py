"""HTTP/3 client on unmodified libcurl with ngtcp2, through curl_cffi. One event loop of transfers per round; PIPEWAIT makes the
transfers of a round share one connection."""

import asyncio

from curl_cffi import AsyncSession, CurlHttpVersion, CurlOpt

from mendinterop.task import Task, drive, response


async def run_rounds(task: Task, rounds: list[dict]) -> None:
    address = f"[{task.address}]" if ":" in task.address else task.address
    options = {
        CurlOpt.RESOLVE: [f"{task.host}:{task.port}:{address}".encode()],
        CurlOpt.PIPEWAIT: 1,
        CurlOpt.CAINFO: task.ca.encode(),
    }
    for index, paths in enumerate(task.rounds):
        async with AsyncSession(
            http_version=CurlHttpVersion.V3ONLY, verify=task.ca, curl_options=options, max_clients=256, timeout=120
        ) as session:

            async def get(path: str) -> dict:
                answer = await session.get(task.url(path))
                if answer.http_version != CurlHttpVersion.V3:
                    raise RuntimeError(f"{path} came over HTTP version {answer.http_version}")
                return response(path, answer.status_code, answer.content)

            responses = await asyncio.gather(*(get(path) for path in paths))
            rounds.append({"alpn": "h3", "responses": list(responses)})
            await asyncio.sleep(task.linger_ms / 1000)


if __name__ == "__main__":
    drive(lambda task, rounds: asyncio.run(run_rounds(task, rounds)))
