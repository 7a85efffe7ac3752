"""A systemd unit for `serve`, as text. Pure.

The unit forbids everything that the daemon does not need to run; docs/install.md says what stays allowed and why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WATCHDOG_S: Final = 30
STOP_S: Final = 45
"""More than the 30 s for which the daemon may go on to answer requests in flight."""

_PLAIN: Final = re.compile(r"[\w@+=:,./-]+", re.ASCII)
_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"))

# Filters of system calls, which need no rights to set up.
_CLOSED_TO_ALL: Final = (
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "# AF_NETLINK: to look up network interfaces when an address is bound",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallErrorNumber=EPERM",
)
# Restrictions by mounts and capabilities, which only the host's service manager may set up.
_CLOSED_TO_A_SYSTEM_SERVICE: Final = (
    "ProtectSystem=strict",
    "ProtectHome=read-only",
    "PrivateDevices=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "CapabilityBoundingSet=",
    "UMask=0077",
)


@dataclass(frozen=True, slots=True)
class Unit:
    """`about`: for the unit's description. `command`: with absolute paths; `made_by`: the command that makes the unit.
    `user`: who runs the daemon; None: a dynamic user, made by systemd.

    `sockets`: UNIX sockets that the daemon listens at. `generates_code`: an engine writes machine code as it runs.
    `reads_again`: the daemon reads files again on SIGHUP; else SIGHUP ends it. `for_user`: for a user's own service
    manager instead of the host's. `leases`: folder of core leases, which other daemons write to as well. `reads`: files
    that the daemon reads, and programs that it runs.
    """

    name: str
    about: str
    command: Sequence[str]
    made_by: str
    user: str | None = None
    sockets: Sequence[Path] = ()
    generates_code: bool = False
    reads_again: bool = False
    for_user: bool = False
    leases: Path | None = None
    reads: Sequence[Path] = ()

    @property
    def text(self) -> str:
        return "\n".join(
            [
                *self._how_to(),
                "[Unit]",
                f"Description=shisha-rt: {self.about.replace('%', '%%')}",
                "After=network.target",
                "",
                "[Service]",
                "Type=notify",
                *self._before(),
                f"ExecStart={_command(self.command)}",
                *["ExecReload=/bin/kill -HUP $MAINPID"] * self.reads_again,
                *self._identity(),
                "",
                "# The first start with a model optimises it, which has limits of its own",
                "TimeoutStartSec=infinity",
                f"WatchdogSec={WATCHDOG_S}",
                "Restart=on-failure",
                "RestartSec=2",
                "# 2: bad input, which another start would not mend",
                "RestartPreventExitStatus=2",
                "# It answers what is in flight first, for up to 30 s, and ends its workers itself",
                f"TimeoutStopSec={STOP_S}",
                "KillMode=mixed",
                "# A worker that is killed for its memory is started again; no reason to end the daemon",
                "OOMPolicy=continue",
                "LimitNOFILE=65536",
                "# Cores: a place on each. Better than CPUQuota=, under which all cores wait for the next period",
                "# AllowedCPUs=0-3",
                "",
                *_CLOSED_TO_ALL,
                "# No MemoryDenyWriteExecute: OpenVINO writes machine code as it runs"
                if self.generates_code
                else "MemoryDenyWriteExecute=yes",
                *self._files(),
                "",
                "[Install]",
                f"WantedBy={'default.target' if self.for_user else 'multi-user.target'}",
                "",
            ]
        )

    def _how_to(self) -> list[str]:
        manage = "systemctl --user" if self.for_user else "systemctl"
        folder = "~/.config/systemd/user" if self.for_user else "/etc/systemd/system"
        return [
            f"# Made by: {self.made_by}",
            f"# Keep it as {folder}/{self.name}.service; then:",
            f"#   {manage} daemon-reload && {manage} enable --now {self.name}",
            "",
        ]

    def _before(self) -> list[str]:
        """Make the folder of leases before each start: a unit does not start if a folder in ReadWritePaths= is missing.

        RuntimeDirectory= would not do: it changes the folder's owner, and removes the folder when one daemon ends.
        """
        if self.for_user or self.leases is None:
            return []
        mkdir = _command(["/bin/mkdir", "-p", "-m", "1777", str(self.leases)])
        return [
            "# Folders below /run are gone after a reboot; this one is for daemons of all users",
            f"ExecStartPre=+{mkdir}",
        ]

    def _identity(self) -> list[str]:
        if self.for_user:
            return []
        return [
            "DynamicUser=yes" if self.user is None else f"User={self.user}",
            f"CacheDirectory={self.name}",
            f"RuntimeDirectory={self.name}",
            f"Environment=XDG_CACHE_HOME=%C/{self.name} XDG_RUNTIME_DIR=%t/{self.name}",
        ]

    def _files(self) -> list[str]:
        if self.for_user:
            return []
        folders = sorted({*(socket.parent for socket in self.sockets), *([self.leases] if self.leases else [])})
        temporary = [folder for folder in folders if is_temporary(folder)]
        own = Path("/run") / self.name
        written = [folder for folder in folders if folder not in temporary and not folder.is_relative_to(own)]
        private = ["PrivateTmp=yes"]
        if hidden := [*temporary, *filter(is_temporary, self.reads)]:
            private = [f"# No PrivateTmp: it would hide {hidden[0]}", *map(_written, temporary)]
        return [*_CLOSED_TO_A_SYSTEM_SERVICE, *private, *map(_written, written)]


def is_temporary(path: Path) -> bool:
    """Whether `PrivateTmp=`, which `DynamicUser=` implies (systemd.exec(5)), would hide `path`."""
    return any(path.is_relative_to(parent) for parent in _TEMPORARY)


def _command(words: Sequence[str]) -> str:
    return " ".join(quoted(word).replace("$", "$$") for word in words)


def _written(folder: Path) -> str:
    return f"ReadWritePaths={quoted(str(folder))}"


def quoted(word: str) -> str:
    """A word quoted for systemd. In a command, and only there, `$` must be doubled too."""
    if _PLAIN.fullmatch(word):
        return word
    escaped = word.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
