// Throughput and latency over the last minutes, with a mark for every trial and every change.

import { byId, choice, clock, digits, el, milliseconds, svg } from "./dom.js";
import { glyph, isMark, tone } from "./events.js";

const SPANS = { 120: "2 min", 600: "10 min" };
const LEFT = 50;
const RIGHT = 14;
const LANE = 50; // px of the marks above the charts, in two rows, and the title above these
const ROW = 12;
const GAP = 30;
const NEAR = 14; // px from a mark that is pointed at

/** `chosen(event)` is told which mark is pointed at. */
export class Charts {
  constructor(chosen) {
    this.samples = [];
    this.marks = [];
    this.status = null;
    this.seconds = 120;
    this.chosen = chosen;
    this.pointed = null;
    this.svg = svg("svg", { role: "img", "aria-label": "Throughput and latency lately; what happened is also told in the list below" });
    this.tip = el("div", { className: "tip", hidden: true });
    this.legend = el("p", { className: "quiet legend" });
    const holder = el("div", { className: "plot" }, this.svg, this.tip);
    byId("charts").replaceChildren(holder, this.legend);
    choice(byId("span"), SPANS, "120", (value) => { this.seconds = Number(value); this.draw(); });
    new ResizeObserver(() => this.draw()).observe(holder);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.legend.append(
      ...[["line", "answered; median"], ["line second", "99th percentile"], ["line dashed", "what the live plan allows"]].map(([kind, text]) => el("span", {}, el("i", { className: kind }), text)),
      ...[["●", "trial, better"], ["○", "trial, not better"], ["◆", "change of plan"], ["✕", "lost"]].map(([mark, text]) => el("span", {}, `${mark} ${text}`)));
  }

  addSamples({ new: isNew, samples }) {
    this.samples = [...(isNew ? [] : this.samples), ...samples].slice(-600);
    this.draw();
  }

  addEvents(isNew, events) {
    this.marks = [...(isNew ? [] : this.marks), ...events.filter(isMark)].slice(-1000);
    this.draw();
  }

  show(status) {
    this.status = status;
  }

  /** An event of the list is pointed at; null: none. */
  highlight(event) {
    this.lit = event?.event ?? null;
    this.draw();
  }

  draw() {
    const width = this.svg.parentElement.clientWidth;
    if (!width) return;
    const high = width < 520 ? 120 : 150;
    const now = this.samples.at(-1)?.[0] ?? Date.now() / 1e3;
    const seconds = this.seconds;
    const x = (time) => LEFT + ((time - now + seconds) / seconds) * (width - LEFT - RIGHT);
    const seen = this.samples.filter((sample) => sample[0] > now - seconds && sample[0] <= now); // later ones are of before the time was set back
    const marks = this.marks.filter((mark) => mark.time_s > now - seconds && mark.time_s <= now + 2);
    const slower = this.status?.machine.time_scale ?? 1; // by which what is measured was divided, and what is answered not
    const trials = marks.filter((mark) => mark.kind === "trial" && mark.throughput_fps);
    const allowed = this.status?.throughput_fps ? this.status.throughput_fps / slower : null;
    const rate = linear([...seen.map((sample) => sample[1]), ...trials.map((trial) => trial.throughput_fps / slower), allowed], LANE + high, LANE);
    const top = LANE + high + GAP;
    const times = [...seen.flatMap((sample) => [sample[3], sample[4]]), ...trials.filter((trial) => trial.latency_s).map((trial) => trial.latency_s * slower)];
    const late = logarithmic(times, top + high, top);
    const height = top + high + 22;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", height);
    const parts = [];
    const grid = (scale, unit, title, at) => {
      for (const tick of scale.ticks) {
        parts.push(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: scale.y(tick), y2: scale.y(tick) }));
        parts.push(svg("text", { class: "tick", x: LEFT - 7, y: scale.y(tick) + 4, "text-anchor": "end" }, unit(tick)));
      }
      parts.push(svg("text", { class: "axis", x: LEFT, y: at }, title));
    };
    grid(rate, digits, "frames a second", 12);
    grid(late, (tick) => digits(tick * 1e3), "latency, ms", top - 9);
    const step = seconds / (width < 520 ? 2 : seconds > 200 ? 5 : 4);
    for (let back = 0; back <= seconds; back += step) {
      const text = back === 0 ? "now" : back % 60 ? `−${back} s` : `−${back / 60} min`;
      const anchor = back === 0 ? "end" : back === seconds ? "start" : "middle";
      parts.push(svg("text", { class: "tick", x: x(now - back), y: height - 5, "text-anchor": anchor }, text));
    }
    for (const mark of marks.filter((one) => one.kind !== "trial" && !one.isMinor && tone(one) !== "")) {
      parts.push(svg("line", { class: `hair ${tone(mark)}`, x1: x(mark.time_s), x2: x(mark.time_s), y1: LANE - 5, y2: top + high }));
    }
    if (allowed) {
      parts.push(svg("line", { class: "allowed", x1: LEFT, x2: width - RIGHT, y1: rate.y(allowed), y2: rate.y(allowed) }));
    }
    const fill = line(seen, x, (sample) => (sample[1] === null ? null : rate.y(sample[1])));
    for (const run of fill) parts.push(svg("path", { class: "area", d: `${run.d}L${run.last} ${LANE + high}L${run.first} ${LANE + high}Z` }));
    for (const run of fill) parts.push(svg("path", { class: "answered", d: run.d }));
    for (const [index, name] of [[4, "p99"], [3, "p50"]]) {
      for (const run of line(seen, x, (sample) => (sample[index] === null ? null : late.y(sample[index])))) parts.push(svg("path", { class: name, d: run.d }));
    }
    this.targets = [];
    const rows = [-Infinity, -Infinity]; // where the last mark of each stands, so that none hides another
    for (const mark of marks) {
      const isTrial = mark.kind === "trial" && mark.throughput_fps;
      const at = { x: x(mark.time_s), y: 0, mark };
      if (isTrial) at.y = rate.y(mark.throughput_fps / slower);
      else {
        const row = mark.isMinor || at.x - rows[0] >= ROW || at.x - rows[1] < ROW ? 0 : 1;
        if (!mark.isMinor) rows[row] = at.x;
        at.y = LANE - 14 - ROW * row;
      }
      this.targets.push(at);
      parts.push(this.drawn(at, isTrial));
      if (isTrial && mark.latency_s) {
        const second = { x: at.x, y: late.y(mark.latency_s * slower), mark };
        this.targets.push(second);
        parts.push(this.drawn(second, true));
      }
    }
    this.cross = svg("line", { class: "cross", y1: LANE, y2: top + high, visibility: "hidden" });
    const none = (y) => parts.push(svg("text", { x: (width + LEFT) / 2, y, "text-anchor": "middle" }, "nothing yet"));
    if (!seen.length) none(LANE + high / 2);
    if (!late.ticks.length) none(top + high / 2);
    this.svg.replaceChildren(...parts, this.cross);
    this.frame = { width, now, x, seen, seconds };
    if (this.pointed) this.tell();
  }

  drawn({ x, y, mark }, isTrial) {
    const lit = mark.event === this.lit ? " lit" : "";
    if (isTrial) return svg("circle", { class: `trial ${mark.verdict}${lit}`, cx: x, cy: y, r: lit ? 6 : 3.5 });
    if (mark.isMinor) return svg("line", { class: `minor${lit}`, x1: x, x2: x, y1: y - 4, y2: y + 6 });
    return svg("text", { class: `mark ${tone(mark)}${lit}`, x, y: y + 5, "text-anchor": "middle" }, glyph(mark));
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    this.pointed = { x: event.clientX - box.left, y: event.clientY - box.top };
    this.tell();
  }

  leave() {
    this.pointed = null;
    this.tip.hidden = true;
    this.cross.setAttribute("visibility", "hidden");
    this.chosen(null);
  }

  /** What is nearest to the pointer: a mark, or else the sample of that time. */
  tell() {
    const { x, seen, width, now, seconds } = this.frame;
    const { x: px, y: py } = this.pointed;
    const far = (target) => Math.hypot(target.x - px, (target.y - py) * (target.mark.kind === "trial" ? 1 : 0.6));
    const near = this.targets.reduce((best, target) => (far(target) < NEAR && (!best || far(target) < far(best)) ? target : best), null);
    const time = now - seconds + ((px - LEFT) / (width - LEFT - RIGHT)) * seconds;
    const sample = seen.reduce((best, one) => (!best || Math.abs(one[0] - time) < Math.abs(best[0] - time) ? one : best), null);
    if (!near && (!sample || px < LEFT - 4)) return this.leave();
    const at = near ? near.x : x(sample[0]);
    this.cross.setAttribute("x1", at);
    this.cross.setAttribute("x2", at);
    this.cross.setAttribute("visibility", "visible");
    const lines = near
      ? [[`${clock(near.mark.time_s)}  ${glyph(near.mark)}`, "quiet"], [near.mark.words, ""]]
      : [[clock(sample[0]), "quiet"], [sample[1] === null ? "the daemon did not answer" : `${digits(sample[1])} frames a second`, ""],
         ...(sample[3] === null ? [] : [[`median ${milliseconds(sample[3])}, 99% within ${milliseconds(sample[4])}`, ""]])];
    this.tip.replaceChildren(...lines.map(([text, kind]) => el("p", { className: kind, textContent: text })));
    this.tip.hidden = false;
    const room = this.tip.offsetWidth + 12;
    this.tip.style.left = `${Math.max(0, Math.min(width - room, at + 12 + room > width ? at - room : at + 12))}px`;
    this.tip.style.top = `${Math.max(0, near ? near.y + 12 : LANE + 4)}px`;
    this.chosen(near?.mark ?? null);
  }
}

/** Lines through what is known, broken where it is not. */
function line(samples, x, y) {
  const runs = [];
  let run = null;
  let before = null;
  for (const sample of samples) {
    const own = y(sample);
    if (own === null || (before !== null && sample[0] - before > 3)) run = null;
    before = sample[0];
    if (own === null) continue;
    const at = x(sample[0]).toFixed(1);
    if (run === null) runs.push((run = { d: `M${at} ${own.toFixed(1)}`, first: at, last: at }));
    else run.d += `L${at} ${own.toFixed(1)}`;
    run.last = at;
  }
  return runs;
}

function linear(values, bottom, top) {
  const most = Math.max(1e-9, ...values.filter((value) => value !== null && value !== undefined));
  const step = nice((most * 1.08) / 3);
  const full = step * Math.ceil((most * 1.08) / step);
  const ticks = Array.from({ length: Math.round(full / step) + 1 }, (_, i) => i * step);
  return { y: (value) => bottom - (value / full) * (bottom - top), ticks: most > 1e-9 ? ticks : [0] };
}

/** Bounds and ticks are 1, 2 or 5 times a power of ten. */
function logarithmic(values, bottom, top) {
  const known = values.filter((value) => value);
  if (!known.length) return { y: () => bottom, ticks: [] };
  const all = [];
  for (let power = -6; power < 4; power++) for (const one of [1, 2, 5]) all.push(one * 10 ** power);
  let first = all.findLastIndex((tick) => tick <= Math.min(...known));
  let last = all.findIndex((tick) => tick >= Math.max(...known));
  first = Math.max(0, first);
  last = last < 0 ? all.length - 1 : Math.max(last, first + 1);
  const [low, high] = [Math.log(all[first]), Math.log(all[last])];
  const each = Math.ceil((last - first) / 5);
  return {
    y: (value) => bottom - ((Math.log(value) - low) / (high - low)) * (bottom - top),
    ticks: all.slice(first, last + 1).filter((_, i) => i % each === 0),
  };
}

function nice(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return power * [1, 2, 5, 10].find((one) => one * power >= step * 0.999);
}
