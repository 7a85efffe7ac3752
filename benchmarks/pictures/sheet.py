"""An animated SVG: shapes and text, moved by CSS alone. It works inside an `<img>`.

Without animation every shape has its state at the `Sheet`'s `still_s`, which is all that a reader who prefers reduced
motion sees. Colours follow the reader's colour scheme, on a card with its own background, as the page around it may
follow another scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

WIDTH: Final = 720
_STYLE: Final = """\
:root{--paper:#fff;--ink:#1b2330;--muted:#5b6676;--line:#cfd6e0;--faint:#f0f3f7;--fast:#2b66cf;--slow:#0b7d74;\
--hot:#c2410c;--old:#2b66cf;--new:#7c3aed;--good:#15803d;--on:#fff}
@media (prefers-color-scheme:dark){:root{--paper:#12161d;--ink:#e6ebf2;--muted:#9aa6b6;--line:#323c4b;--faint:#1b212b;\
--fast:#6ea3ff;--slow:#3ccfbe;--hot:#ff9455;--old:#6ea3ff;--new:#b794ff;--good:#5fd48a;--on:#0c1016}}
text{font:14px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:var(--ink)}
.s{font-size:12px}.b{font-weight:600}.m{fill:var(--muted)}.c{text-anchor:middle}.e{text-anchor:end}.o{fill:var(--on)}.h{fill:var(--hot)}.g{fill:var(--good)}.l{paint-order:stroke;stroke:var(--paper);stroke-width:4px}
.t{font-size:16px;font-weight:600}
"""
_STOPPED: Final = "@media (prefers-reduced-motion:reduce){*{animation:none!important}}"


class At(NamedTuple):
    """A keyframe: position, factor of width, and opacity of a shape, `time_s` into the picture."""

    time_s: float
    x: float = 0.0
    y: float = 0.0
    scale_x: float = 1.0
    opacity: float = 1.0

    def style(self, *, fades: bool) -> str:
        """The keyframe in CSS. Opacity must be in all keyframes or in none, else it is interpolated across some."""
        scale = f" scaleX({figure(self.scale_x, 4)})" if self.scale_x != 1 else ""
        moved = f"transform:translate({figure(self.x, 1)}px,{figure(self.y, 1)}px){scale}"
        return f"{moved};opacity:{figure(self.opacity)}" if fades else moved


class Sheet:
    """A picture of `height` by `WIDTH`, which repeats every `seconds`. Later shapes cover earlier ones."""

    def __init__(self, title: str, description: str, height: int, seconds: float, still_s: float) -> None:
        self._title, self._description, self._height = title, description, height
        self._seconds, self._still_s = seconds, still_s
        self._rules: dict[str, str] = {}  # CSS with NAME as a placeholder -> name of its class
        self._shapes: list[str] = []

    def add(self, shape: str) -> None:
        self._shapes.append(shape)

    def text(self, x: float, y: float, words: str, style: str = "") -> None:
        self.add(text(x, y, words, style))

    def rect(self, x: float, y: float, width: float, height: float, fill: str, more: str = "") -> None:
        self.add(rect(x, y, width, height, fill, more))

    def moving(self, shape: str, track: Sequence[At], *, steps: bool = False) -> None:
        """Add a shape that moves along `track`, ascending in time: in straight lines, or in `steps`.

        Before the first keyframe it has the first state, after the last one the last.
        """
        self.add(f'<g class="{self._rule(track, steps)}">{shape}</g>')

    def shown(self, shape: str, since_s: float, until_s: float | None = None) -> None:
        """Add a shape that is visible from one time on, or between two."""
        until_s = self._seconds if until_s is None else until_s
        track = [At(0.0, opacity=float(since_s <= 0)), At(since_s), At(until_s, opacity=0.0)]
        self.moving(shape, [at for at in track if at.time_s < self._seconds], steps=True)

    def __str__(self) -> str:
        rules = "".join(f".{name}{rule.replace('NAME', name)}\n" for rule, name in self._rules.items())
        shapes = "\n".join(self._shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self._height}" role="img" '
            f'aria-labelledby="title desc">\n'
            f'<title id="title">{escape(self._title)}</title>\n<desc id="desc">{escape(self._description)}</desc>\n'
            f"<style>\n{_STYLE}{rules}{_STOPPED}\n</style>\n"
            f'<rect width="{WIDTH}" height="{self._height}" rx="10" fill="var(--paper)"/>\n{shapes}\n'
            f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{self._height - 1}" rx="10" fill="none" '
            f'stroke="var(--line)"/>\n</svg>\n'
        )

    def _rule(self, track: Sequence[At], steps: bool) -> str:
        """Name of the class with this movement; equal tracks share one."""
        fades = any(at.opacity != 1 for at in track)
        still = _between(track, self._still_s, steps).style(fades=fades)
        frames: list[str] = []
        for at in (track[0]._replace(time_s=0.0), *track, track[-1]._replace(time_s=self._seconds)):
            frame = f"{figure(100 * at.time_s / self._seconds)}%{{{at.style(fades=fades)}}}"
            frames += [frame] * (frame not in frames)
        how = "step-end" if steps else "linear"
        runs = f"animation:NAME {figure(self._seconds)}s {how} infinite"
        rule = f"{{{still};{runs}}}\n@keyframes NAME{{{''.join(frames)}}}"
        return self._rules.setdefault(rule, f"k{len(self._rules)}")


def _between(track: Sequence[At], time_s: float, steps: bool) -> At:
    before = [at for at in track if at.time_s <= time_s]
    if not before:
        return track[0]
    last, after = before[-1], track[len(before) :]
    if not after or steps:
        return last
    share = (time_s - last.time_s) / (after[0].time_s - last.time_s)
    return At(*(a + share * (b - a) for a, b in zip(last, after[0], strict=True)))


def figure(number: float, digits: int = 2) -> str:
    """A number in its shortest form with at most `digits` decimals."""
    short = f"{number:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{number:.0f}"
    return "0" if short == "-0" else short


def text(x: float, y: float, words: str, style: str = "") -> str:
    """`style`: s small, b bold, t title, m muted, h hot, g good, c centred, e ending here, o on a coloured ground, and
    l clear of lines that it crosses.
    """
    drawn = f' class="{style}"' if style else ""
    return f'<text x="{figure(x)}" y="{figure(y)}"{drawn}>{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, fill: str, more: str = "") -> str:
    """`fill` names a colour of the palette, empty: none; `more` are further attributes."""
    where = f'x="{figure(x)}" y="{figure(y)}" width="{figure(width)}" height="{figure(height)}"'
    colour = f"var(--{fill})" if fill else "none"
    return f'<rect {where} fill="{colour}"{" " * bool(more)}{more}/>'


def dot(x: float, y: float, radius: float, fill: str, number: str) -> str:
    circle = f'<circle cx="{figure(x, 1)}" cy="{figure(y, 1)}" r="{figure(radius)}" fill="var(--{fill})"/>'
    return circle + text(round(x, 1), y + 4, number, "s c o")
