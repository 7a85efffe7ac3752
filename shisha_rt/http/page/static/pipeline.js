// The live plan, one stage below the other, with the ways between them and what each takes for a frame.

import { byId, count, digits, el, milliseconds, plural, say, svg } from "./dom.js";

const LANE = 26; // px between two columns
const EDGE = 15; // px from the left side to the first one

export class Pipeline {
  constructor() {
    this.holder = byId("pipeline");
    this.shape = "";
    this.rows = [];
    this.drawing = null;
    new ResizeObserver(() => this.drawWays()).observe(this.holder);
  }

  show({ status, drawn }, rate) {
    const plan = status.plan;
    say(byId("plan"), plan.epoch === null ? "no plan is live yet" : summary(status, drawn));
    const shape = JSON.stringify([plan.epoch, drawn.stages.map((stage) => [stage.work, stage.teams]), drawn.ways]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.build(drawn, plan.epoch === null);
    }
    if (plan.epoch === null) return;
    const places = new Map(status.places.map((place) => [place.name, place]));
    const inFlight = status.frames.in_flight;
    const hasSome = inFlight > 0 || Object.values(status.frames.answered).some((number) => number > 0);
    if (hasSome) say(this.into, `frames in${rate === null ? "" : ` · ${digits(rate)}/s`}`);
    else if (!this.into.firstChild) this.into.append("no frame yet; send some: ", typed(drawn.send));
    say(this.out, `answers${inFlight ? ` · ${count(inFlight)} in flight` : ""}`);
    this.svg.classList.toggle("flows", Boolean(rate));
    this.rows.forEach((row, i) => row.show(drawn.stages[i], plan.stages[i], places));
    this.showNotes(status, drawn, places);
    this.drawWays();
  }

  build(drawn, isEmpty) {
    this.drawn = drawn;
    if (isEmpty) {
      this.svg = null;
      this.holder.replaceChildren(el("p", { className: "empty", textContent: "The daemon is starting. Its stages are drawn here as soon as its first plan is live." }));
      return;
    }
    this.into = el("p", { className: "terminal" });
    this.out = el("p", { className: "terminal" });
    this.rows = drawn.stages.map((stage, i) => new Row(stage, i, drawn));
    this.svg = svg("svg", { class: "ways", "aria-hidden": "true" });
    this.notes = el("div", { className: "notes" });
    const flow = el("div", { className: "flow" }, this.svg, this.into, el("ol", {}, this.rows.map((row) => row.element)), this.out);
    flow.style.setProperty("--gutter", `${2 * EDGE + LANE * Math.max(...drawn.lanes, ...drawn.ways.map((way) => way[2]))}px`);
    this.flow = flow;
    this.holder.replaceChildren(flow, this.notes);
  }

  showNotes(status, drawn, places) {
    const lines = [...drawn.shared];
    if (drawn.unused.length) {
      const told = drawn.unused.slice(0, 12).map((name) => {
        const place = places.get(name);
        return place.state === "up" && place.available ? name : `${name} (${placeState(place)})`;
      });
      const more = drawn.unused.length - told.length;
      lines.push(`Without a stage: ${told.join(", ")}${more > 0 ? ` and ${more} more` : ""}`);
    }
    if (status.places.some((place) => place.emulated)) {
      lines.push("≈ emulated: it computes for real, then waits as a slower place would.");
    }
    const slower = status.machine.time_scale;
    if (slower !== 1) lines.push(`Everything takes ${slower} times as long here as on what is emulated: times of stages, and what the plan allows, are divided by that; frames answered and their latency are not.`);
    const text = JSON.stringify(lines);
    if (this.notes.dataset.text === text) return;
    this.notes.dataset.text = text;
    this.notes.replaceChildren(...lines.map((line) => el("p", { textContent: line })));
  }

  /** From node to node, by where the rows have come to lie. */
  drawWays() {
    if (!this.svg?.isConnected) return;
    const base = this.flow.getBoundingClientRect();
    const nodes = [this.into, ...this.rows.map((row) => row.head), this.out].map((element, i) => {
      const box = element.getBoundingClientRect();
      return { x: EDGE + LANE * this.drawn.lanes[i], y: Math.round(box.top - base.top + box.height / 2) };
    });
    const key = JSON.stringify([nodes, this.rows.map((row) => row.isSlowest)]);
    if (key === this.drawnKey && this.svg.childNodes.length) return;
    this.drawnKey = key;
    this.svg.setAttribute("height", Math.ceil(base.height));
    const ways = this.drawn.ways.map(([from, to, lane]) => svg("path", { d: way(nodes, from, to, EDGE + LANE * lane), class: "way" }));
    const circles = nodes.map(({ x, y }, i) => {
      const isEnd = i === 0 || i === nodes.length - 1;
      const isSlowest = !isEnd && this.rows[i - 1].isSlowest;
      const number = isEnd ? "" : this.rows[i - 1].number;
      const r = isEnd ? 4 : (number.length > 2 ? 12 : number ? 9 : 6) + Number(isSlowest);
      const circle = svg("circle", { cx: x, cy: y, r, class: isEnd ? "end" : isSlowest ? "node slowest" : "node" });
      return number ? [circle, svg("text", { x, y: y + 4, "text-anchor": "middle", class: "number" }, number)] : [circle];
    }).flat();
    this.svg.replaceChildren(...ways, ...circles);
  }
}

/** Straight where it can be; else round to its column, down, and round to where it ends. */
function way(nodes, from, to, x) {
  const a = nodes[from];
  const b = nodes[to];
  const bend = (one, y, other, z) => `C${one} ${(y + z) / 2} ${other} ${(y + z) / 2} ${other} ${z}`;
  if (a.x === x && b.x === x) return `M${a.x} ${a.y}V${b.y}`;
  const below = nodes[from + 1].y;
  const above = nodes[to - 1].y;
  if (to - from === 1) return `M${a.x} ${a.y}${bend(a.x, a.y, b.x, b.y)}`;
  const start = a.x === x ? `M${a.x} ${a.y}V${above}` : `M${a.x} ${a.y}${bend(a.x, a.y, x, below)}V${above}`;
  return start + (b.x === x ? `V${b.y}` : bend(x, above, b.x, b.y));
}

class Row {
  constructor(stage, index, drawn) {
    this.isSlowest = false;
    this.work = el("span", { className: "work", textContent: capital(stage.work) });
    this.tag = el("span", { className: "tag", textContent: "slowest", hidden: true });
    this.number = drawn.chain ? "" : String(index);
    this.head = el("p", { className: "title" }, this.work, this.tag);
    this.teams = stage.teams.map((team) => new Team(team));
    const copies = stage.teams.length > 1 ? el("span", { className: "quiet", textContent: `${stage.teams.length} copies` }) : null;
    const after = stage.after && el("span", { className: "quiet", textContent: stage.after });
    this.chips = el("p", { className: "chips" }, this.teams.map((team) => team.element), copies, after || null);
    this.bar = el("div", { className: "bar" });
    this.time = el("span", { className: "time" });
    this.queue = el("span", { className: "queue" });
    this.notes = el("p", { className: "quiet rest" });
    this.element = el("li", { className: "stage" },
      el("div", { className: "what" }, this.head, this.chips),
      el("div", { className: "takes" },
        el("p", { className: "figures-line" }, this.time, this.queue),
        el("div", { className: "track" }, this.bar), this.notes));
  }

  show(drawn, stage, places) {
    this.isSlowest = drawn.slowest;
    this.element.classList.toggle("slowest", drawn.slowest);
    this.tag.hidden = !drawn.slowest;
    this.bar.style.width = `${100 * drawn.bar}%`;
    say(this.time, drawn.time);
    const queued = stage.queued ?? 0;
    say(this.queue, queued ? `${plural(queued, "frame")} here` : "");
    this.teams.forEach((team, i) => team.show(stage.teams?.[i], places));
    const notes = [...drawn.notes];
    if (stage.waited_s > 0.0005) notes.push(`a frame waits ${milliseconds(stage.waited_s)} for it`);
    this.showPlacement(stage, notes);
    say(this.notes, notes.join(" · "));
  }

  /** The bar in parts, one for each segment on a device. */
  showPlacement(stage, notes) {
    const segments = stage.placement?.segments ?? [];
    const times = segments.map((segment) => segment.measured_s ?? 0);
    const total = times.reduce((sum, time) => sum + time, 0);
    const key = JSON.stringify(segments.map((segment) => segment.device));
    if (this.bar.dataset.key !== key) {
      this.bar.dataset.key = key;
      const devices = [...new Set(segments.map((segment) => segment.device))];
      this.bar.replaceChildren(...segments.map((segment) => el("span", { className: `part d${devices.indexOf(segment.device) % 4}`, title: segment.device })));
    }
    segments.forEach((_, i) => { this.bar.children[i].style.flexGrow = String(total ? times[i] / total : 1); });
    const told = (device, operators, time) => `${device}: ${plural(operators, "operator")}${time ? `, ${milliseconds(time)}` : ""}`;
    if (segments.length > 4) {
      const devices = [...new Set(segments.map((segment) => segment.device))];
      const sums = devices.map((device) => segments.reduce(([operators, time], one, i) =>
        (one.device === device ? [operators + one.operators, time + times[i]] : [operators, time]), [0, 0]));
      notes.push(`${segments.length} segments`, ...devices.map((device, i) => told(device, ...sums[i])));
    } else if (segments.length) {
      notes.push(segments.map((segment, i) => told(segment.device, segment.operators, times[i])).join(" → "));
    }
  }
}

class Team {
  constructor(team) {
    this.names = team;
    this.marks = team.map(() => el("span", { className: "state" }));
    this.element = el("span", { className: "chip team" }, team.map((name, i) =>
      el("span", { className: "member" }, this.marks[i], el("span", { className: "name", textContent: i ? `+ ${name}` : name, title: name }))));
  }

  show(team, places) {
    let isWell = true;
    this.names.forEach((name, i) => {
      const place = places.get(name);
      const mark = place ? stateMark(place) : "?";
      isWell &&= mark === "●";
      say(this.marks[i], `${mark}${place?.emulated ? "≈" : ""}`);
      this.marks[i].title = place ? `${placeState(place)}${place.emulated ? ", emulated" : ""}` : "";
    });
    this.element.classList.toggle("unwell", !isWell);
  }
}

/** What a place is, as one character with a meaning of its own: one that is not wanted has not failed. */
export function stateMark(place) {
  if (place.available && place.state !== "out") return place.state === "up" ? "●" : "◌";
  return place.given_up ? "✕" : "–";
}

export function placeState(place) {
  const words = { up: "up", starting: "starting", restarting: "starting again", out: "down", draining: "ending" };
  if (place.state === "released") return "released";
  const state = words[place.state] ?? place.state;
  if (place.available) return state;
  return place.state === "up" || place.state === "out" ? "down, not in planning" : `${state}, not in planning`;
}

/** A command, which lines break at its spaces only. */
function typed(command) {
  return el("code", {}, command.split(" ").flatMap((word) => [el("span", { textContent: word }), " "]));
}

function summary(status, drawn) {
  const stages = plural(drawn.stages.length, "stage");
  const places = plural(new Set(drawn.stages.flatMap((stage) => stage.teams.flat())).size, "place");
  const coming = status.preparing === null ? "" : ` · preparing epoch ${status.preparing}`;
  return `epoch ${status.plan.epoch} · ${stages} on ${places}${coming}`;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
