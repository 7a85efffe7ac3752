"""The link that hosts are put behind: no faster than it says, changed while it runs, and gone at the end."""

from __future__ import annotations

import json
import subprocess

import pytest

from benchmarks.rigs.child_process import child_process
from benchmarks.rigs.control_group import ShareGroup, lacking_shares
from benchmarks.rigs.slow_link import lacking, slow_link
from tests.benchmarks.echo_process import EchoClient

MBIT = 1e6

needs_link = pytest.mark.skipif(lacking() is not None, reason=f"needs {lacking()}")
needs_shares = pytest.mark.skipif(lacking_shares() is not None, reason=f"needs {lacking_shares()}")


def addresses() -> str:
    return subprocess.run(["ip", "-json", "address"], check=True, capture_output=True, text=True).stdout


@needs_link
def test_no_answer_comes_sooner_than_the_link_lets_it() -> None:
    with slow_link(1, rate_bits_per_s=200 * MBIT, delay_s=2e-3) as link:
        (host,) = link.hosts
        with child_process("tests.benchmarks.echo_process", enter=host.enter, address=host.address) as echo:
            client = EchoClient(host.address, echo.ready["port"])
            assert client.ask_s(1, 1) >= 2 * 2e-3
            assert client.ask_s(1 << 20, 1) >= 8 * (1 << 20) / (200 * MBIT)
            link.set(1000 * MBIT, 20e-3)
            assert client.ask_s(1, 1) >= 2 * 20e-3
            (carried,) = link.carried()
            client.close()
        assert carried["there_bytes"] > 1 << 20 > carried["back_bytes"]


@needs_link
def test_hosts_reach_each_other_and_leave_no_address_behind() -> None:
    with slow_link(2, rate_bits_per_s=1000 * MBIT, delay_s=1e-3) as link:
        first, other = link.hosts
        ask = "from tests.benchmarks.echo_process import EchoClient; "
        ask += f"print(EchoClient({first.address!r}, PORT).ask_s(9, 9))"
        with child_process("tests.benchmarks.echo_process", enter=first.enter, address=first.address) as echo:
            command = [*other.enter, "python", "-c", ask.replace("PORT", str(echo.ready["port"]))]
            took_s = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        assert took_s >= 4 * 1e-3
        assert link.address in addresses()
    assert link.address not in addresses()


@needs_shares
def test_a_host_of_half_a_core_has_no_more() -> None:
    spin = (
        "import json, time; input(); began_s = time.monotonic()\n"
        "while time.monotonic() < began_s + 0.5: pass\n"
        "print(json.dumps([time.process_time(), time.monotonic() - began_s]))"
    )
    with ShareGroup(0.5) as group:
        process = subprocess.Popen(["python", "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        group.members.write_text(str(process.pid))
        spent_s, took_s = json.loads(process.communicate("\n")[0])
        assert group.folder.exists()
    # Of its start some was before it joined; and a period's share may be left from before.
    assert spent_s <= 0.5 * took_s + 0.2
    assert not group.folder.exists()
