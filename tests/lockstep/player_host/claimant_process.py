"""A process that claims one log and keeps it, again and again, and says so: what a test kills and stops.

python -m tests.lockstep.player_host.claimant_process BOOTSTRAP TOPIC NAME LOG_ID RENEW_MS LEASE_MS
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from lockstep.player_host.claims import ClaimLost, Claims
from lockstep.player_host.claims_topic import ClaimsTopic
from lockstep.player_host.config import ClaimsConfig


async def main(bootstrap: str, topic: str, name: str, log_id: str, renew_ms: str, lease_ms: str) -> None:
    settings = ClaimsConfig(topic, int(renew_ms), int(lease_ms))
    claims = Claims(ClaimsTopic(bootstrap, topic, name), name, settings)
    await claims.open()
    print("open", flush=True)
    task = asyncio.ensure_future(_claim(claims, log_id))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await claims.close()


async def _claim(claims: Claims, log_id: str) -> None:
    while True:
        held = await claims.claim(log_id)
        print(f"claimed {held.claim.player_term}", flush=True)
        try:
            await claims.keep(held)
        except ClaimLost as lost:
            print(f"lost {held.claim.player_term}: {lost}", flush=True)
        except asyncio.CancelledError:
            await claims.release(held)
            print(f"gave up {held.claim.player_term}", flush=True)
            raise


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
