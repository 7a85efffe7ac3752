"""The PartitionTuner paper's figures for its seven networks. Table 2 says microseconds; milliseconds are assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shisha_rt.planner.strategies import SchemeName

SCHEMES: Final[Mapping[SchemeName, str]] = MappingProxyType(
    {"baseline": "CPU alone", "typeseq": "TypeSeq", "opseq": "OpSeq", "partitiontuner": "PartitionTuner"}
)
"""Schemes in the order of the tables."""


@dataclass(frozen=True, slots=True)
class Published:
    """`size_mb` and `ms` (schemes,): of Table 2; other tuples, of Tables 3 and 4: (schemes except the CPU alone,)."""

    title: str
    size_mb: int
    ms: tuple[float, float, float, float]
    parallel_branches: int
    convs: int
    convs_on_npu: tuple[int, int, int]
    relus_on_npu: tuple[int, int, int]
    overlapping: int
    partitions: tuple[int, int, int]


NETWORKS: Final[Mapping[str, Published]] = MappingProxyType(
    {
        "zfnet512": Published(
            "ZFNet", 349, (2435.17, 1694.38, 1699.78, 1694.38), 0, 5, (4, 4, 4), (6, 0, 6), 0, (5, 10, 5)
        ),
        "alexnet": Published(
            "AlexNet", 244, (860.10, 810.73, 810.92, 810.73), 0, 5, (1, 1, 1), (1, 0, 1), 0, (3, 3, 3)
        ),
        "inception_v1": Published(
            "GoogLeNet", 171, (1465.80, 482.30, 507.09, 482.30), 36, 57, (52, 49, 52), (18, 0, 18), 0, (34, 69, 34)
        ),
        "resnet50": Published(
            "ResNet-50", 103, (3183.74, 636.19, 684.15, 635.04), 8, 53, (52, 52, 52), (48, 0, 32), 0, (34, 98, 34)
        ),
        "resnext50": Published(
            "ResNeXt-50", 100, (6638.85, 3959.94, 3952.10, 3928.46), 8, 53, (36, 36, 36), (16, 0, 9), 0, (65, 65, 65)
        ),
        "resnet18": Published(
            "ResNet-18", 47, (1269.18, 249.03, 262.57, 248.49), 6, 20, (19, 18, 18), (16, 0, 8), 2, (17, 33, 18)
        ),
        "squeezenet": Published(
            "SqueezeNet", 5, (298.64, 195.46, 190.83, 185.62), 16, 26, (24, 18, 18), (8, 0, 1), 8, (25, 29, 23)
        ),
    }
)
"""Networks by their names in the zoo, in the order of the tables."""
