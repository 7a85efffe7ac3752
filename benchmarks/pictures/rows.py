"""Parts as bars on a time axis, a row for each place, uncovered as time passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.pictures.served import Part
from benchmarks.pictures.sheet import WIDTH, At, Sheet, figure, rect, text


@dataclass(frozen=True, slots=True)
class Rows:
    """The first place's row is at `top`; `seconds` of the machine's time are drawn between `left` and `right`."""

    names: Sequence[str]
    top: float
    row: float
    bar: float
    left: float
    right: float
    seconds: float

    @property
    def bottom(self) -> float:
        return self.top + self.row * len(self.names)

    def x_of(self, at_s: float) -> float:
        return self.left + (self.right - self.left) * min(at_s, self.seconds) / self.seconds

    def draw(self, sheet: Sheet, parts: Iterable[Part], colour_of: Callable[[Part], str], style: str) -> None:
        """Draw each part with the number of its frame; later parts are left out, those that end later cut."""
        for index, name in enumerate(self.names):
            y = self.top + self.row * index
            sheet.text(self.left - 8, y + self.bar / 2 + 4.5, name, f"{style} b e")
            sheet.rect(self.left, y, self.right - self.left, self.bar, "faint")
        bars: dict[str, list[str]] = {}
        numbers: list[str] = []
        for part in parts:
            if part.start_s < self.seconds:
                x, right = self.x_of(part.start_s), self.x_of(part.end_s)
                y = self.top + self.row * self.names.index(part.place)
                width = max(right - x - 1, 0.5)
                bars.setdefault(colour_of(part), []).append(
                    f"M{figure(x, 1)} {figure(y)}h{figure(width, 1)}v{figure(self.bar)}h-{figure(width, 1)}z"
                )
                if width > 8 * len(str(part.frame)):
                    numbers.append(
                        text(round((x + right) / 2, 1), y + self.bar / 2 + 4.5, str(part.frame), f"{style} c o")
                    )
        for colour, paths in bars.items():
            sheet.add(f'<path fill="var(--{colour})" d="{"".join(paths)}"/>')
        sheet.add("".join(numbers))

    def axis(self, sheet: Sheet, y: float, step_s: float = 0.2) -> None:
        for index in range(round(self.seconds / step_s) + 1):
            at_s = step_s * index
            sheet.text(self.x_of(at_s), y, f"{figure(at_s, 1)} s", "s m c")

    def uncovered(self, sheet: Sheet, top: float, bottom: float, seconds: float) -> None:
        """Uncover what was drawn between `top` and `bottom` as `seconds` pass, with a line at the present time."""
        cover = rect(0, top, WIDTH, bottom - top, "paper")
        line = f'<path d="M0 {figure(top)}V{figure(bottom)}" stroke="var(--ink)" stroke-width="1.5"/>'
        right = (At(0.0, self.left), At(seconds, self.right))
        sheet.moving(cover + line, (*right, At(seconds + 0.01, WIDTH + 2)))
