// The places of the machine, their devices, and what can be set of them.

import { byId, digits, el, plural, say } from "./dom.js";
import { placeState, stateMark } from "./pipeline.js";

export class Places {
  constructor(send) {
    this.send = send;
    this.cards = new Map();
    this.holder = byId("places");
  }

  show(status, may) {
    const names = status.places.map((place) => place.name);
    const key = JSON.stringify(status.places.map((place) => [place.name, place.devices.map((device) => device.name)]));
    if (key !== this.key) {
      this.key = key;
      this.cards = new Map(status.places.map((place) => [place.name, new Card(place, this.send)]));
      this.holder.replaceChildren(...names.map((name) => this.cards.get(name).element));
    }
    const lost = status.places.filter((place) => stateMark(place) !== "●").length;
    const emulated = status.machine.emulated ? ", some or all emulated" : "";
    say(byId("places-note"), `${plural(names.length, "place")}${lost ? `, ${lost} not up` : ""}${emulated}`);
    const stages = new Map();
    status.plan.stages.forEach((stage, i) => stage.places.flat().forEach((name) => stages.set(name, [...(stages.get(name) ?? []), i])));
    for (const place of status.places) this.cards.get(place.name).show(place, stages.get(place.name) ?? [], may);
  }
}

class Card {
  constructor(place, send) {
    const act = async (fields) => {
      await send({ op: "place_set", place: place.name, ...fields }, this.said);
      for (const speed of [this.speed, ...this.devices.map((device) => device.speed)]) speed.shown = null;
    };
    this.mark = el("span", { className: "state" });
    this.state = el("span", { className: "quiet" });
    this.about = el("p", { className: "quiet" });
    this.error = el("p", { className: "error", hidden: true });
    this.said = el("p", { className: "said", role: "status" });
    this.flip = el("button", { type: "button", on: { click: () => act(this.isDown ? { up: true } : { down: true }) } });
    this.devices = place.devices.map((device) => ({ text: el("span"), speed: new Speed(`speed of ${device.name}`, (speed) => act({ device: device.name, speed })) }));
    this.speed = new Speed("speed", (speed) => act({ speed }));
    this.element = el("article", { className: "place" },
      el("p", { className: "title" }, this.mark, el("b", { textContent: place.name, className: "name", title: place.name }), this.state),
      this.about,
      this.devices.length ? el("ul", { className: "devices" }, this.devices.map((device) => el("li", {}, device.text))) : null,
      this.error,
      el("details", {}, el("summary", { textContent: "change" }), el("div", { className: "line" }, this.flip, this.speed.element),
        this.devices.map((device) => el("div", { className: "line" }, device.speed.element)), this.said));
  }

  show(place, stages, may) {
    this.isDown = !place.available && place.state === "out";
    const mark = stateMark(place);
    say(this.mark, mark);
    this.element.dataset.state = { "●": "up", "◌": "coming", "–": "unwanted" }[mark] ?? "down";
    const many = stages.length > 6 ? `${stages.length} stages` : `stage ${stages.join(", ")}`;
    say(this.state, stages.length ? `${placeState(place)} · ${many}` : `${placeState(place)} · no stage`);
    const parts = [`speed ${digits(place.speed)}${place.emulated ? " ≈ emulated" : ""}`, `core ${ranges(place.cores)}`];
    if (place.threads > 1) parts.push(`${place.threads} threads`);
    if (place.memory) parts.push(`memory ${place.memory}`);
    if (place.restarts) parts.push(plural(place.restarts, "restart"));
    say(this.about, parts.join(" · "));
    place.devices.forEach((device, i) => {
      say(this.devices[i].text, `${device.name}${device.speed === 1 ? "" : ` at ${digits(device.speed)}`}${device.emulated ? " ≈ emulated" : ""}${device.exact ? "" : ", rounds"}`);
      this.devices[i].speed.show(device.speed, may);
    });
    this.error.hidden = !place.last_error;
    say(this.error, place.last_error ? `${mark === "●" ? "last death: " : ""}${place.last_error}` : "");
    say(this.flip, this.isDown ? "bring up" : "take down");
    this.flip.disabled = !may;
    this.speed.show(place.speed, may);
  }
}

/** A number and a button that sends it. */
class Speed {
  constructor(name, set) {
    this.input = el("input", { type: "number", min: "0.001", max: "1", step: "any", required: true, inputMode: "decimal" });
    this.button = el("button", { textContent: "set" });
    this.element = el("form", { on: { submit: (event) => { event.preventDefault(); set(Number(this.input.value)); this.input.blur(); } } },
      el("label", {}, `${name} `, this.input), this.button);
  }

  show(speed, may) {
    this.input.disabled = this.button.disabled = !may;
    if (document.activeElement !== this.input && this.shown !== speed) this.input.value = String(Number(speed.toPrecision(4)));
    this.shown = speed;
  }
}

function ranges(cores) {
  const runs = [];
  for (const core of cores) {
    const run = runs.at(-1);
    if (run && core === run[1] + 1) run[1] = core;
    else runs.push([core, core]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}
