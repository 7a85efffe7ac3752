// Pause, resume, restart, and how the tuner searches: where the reader may.

import { byId, el, say } from "./dom.js";

const SCHEMES = ["forkjoin", "partitiontuner", "baseline", "opseq", "typeseq"];

export class Control {
  constructor(send) {
    const set = async (fields) => {
      await send({ op: "tuner_set", ...fields }, this.said);
      this.reset();
    };
    this.said = el("p", { className: "said", role: "status" });
    this.why = el("p", { className: "quiet" });
    this.buttons = [["pause", "Pause"], ["resume", "Resume"], ["restart", "Search again"]].map(([name, text]) =>
      el("button", { type: "button", textContent: text, id: `do-${name}`, on: { click: () => set({ [name]: true }) } }));
    this.strategy = new Choice("strategy", (strategy) => set({ strategy }));
    this.objective = new Choice("objective", (objective) => set({ objective }));
    this.alpha = el("input", { type: "number", min: "1", max: "1000000", step: "1", required: true, id: "alpha" });
    this.setAlpha = el("button", { textContent: "set" });
    this.element = el("div", { className: "control" }, el("div", { className: "line" }, this.buttons),
      el("div", { className: "line" }, this.strategy.element, this.objective.element,
        el("form", { on: { submit: (event) => { event.preventDefault(); set({ alpha: Number(this.alpha.value) }); this.alpha.blur(); } } },
          el("label", { title: "Moves without gain after which a search ends" }, "alpha ", this.alpha), this.setAlpha)), this.said, this.why);
    byId("control").replaceChildren(this.element);
  }

  /** After an answer the daemon's values count again, also where it refused. */
  reset() {
    this.shown = this.strategy.shown = this.objective.shown = null;
  }

  show({ tuner, places }, may, reason) {
    const off = tuner.state === "off";
    const disabled = !may || off;
    for (const button of this.buttons) button.disabled = disabled;
    this.buttons[0].disabled ||= tuner.state === "paused";
    this.buttons[1].disabled ||= tuner.state !== "paused";
    const isScheme = SCHEMES.includes(tuner.strategy);
    this.strategy.show(isScheme ? SCHEMES : off ? [tuner.strategy] : ["guided", "shisha"], tuner.strategy, disabled);
    this.objective.show(isScheme ? ["latency"] : ["auto", "throughput", "latency", ...(places.every((place) => place.power_w) ? ["energy"] : [])], tuner.objective, disabled);
    this.alpha.disabled = this.setAlpha.disabled = disabled;
    if (document.activeElement !== this.alpha && this.shown !== tuner.alpha) this.alpha.value = String(tuner.alpha);
    this.shown = tuner.alpha;
    say(this.why, !may ? reason : off ? "The daemon was started without a tuner." : "");
  }
}

class Choice {
  constructor(name, changed) {
    this.select = el("select", { id: name, on: { change: () => changed(this.select.value) } });
    this.element = el("label", {}, `${name} `, this.select);
    this.key = "";
  }

  show(options, value, disabled) {
    const key = options.join();
    if (key !== this.key) {
      this.key = key;
      this.select.replaceChildren(...options.map((option) => el("option", { value: option, textContent: option })));
      this.shown = null;
    }
    const isOpen = this.shown !== null && document.activeElement === this.select; // null: also where it has the focus
    if (this.shown !== value && !isOpen) this.select.value = this.shown = value;
    this.select.disabled = disabled;
  }
}
