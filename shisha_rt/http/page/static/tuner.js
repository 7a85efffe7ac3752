// The tuner: what it does and why, the best plan that it knows, and how far that is from what is possible.

import { byId, count, digits, el, milliseconds, percent, plural, say } from "./dom.js";

const START = "where tuning starts";
const STATES = {
  off: "No tuner: the plan stays as it is.",
  profiling: "Measuring what layers take, beside the frames.",
  no_costs: "Layers could not be measured; strategy shisha tunes without.",
  paused: "Paused: the plan stays as it is.",
  tuning: "Trying plans.",
  settling: "Making the best plan live.",
  watching: "Tuned; watching for slowdowns.",
  comparing: "Comparing plans.",
  waiting: "Waiting for frames to measure.",
};

function sentence({ state, trying, comparing }) {
  if (trying) return trying === START ? "Measuring the initial plan." : `Trying: ${trying}.`;
  if (state === "comparing" && comparing)
    return `Comparing plans for ${comparing.objective}: ${comparing.tried} of ${comparing.candidates}, ${comparing.ahead} ahead.`;
  return STATES[state] ?? "";
}

export class Tuner {
  constructor() {
    this.says = el("p", { className: "sentence" });
    this.facts = el("dl", { className: "facts" });
    this.gauge = el("div", { className: "gauge" }, el("div", { className: "bound" }));
    this.gap = el("p", { className: "quiet" });
    this.meter = el("div", { className: "gap", hidden: true }, this.gauge, this.gap);
    byId("tuner").replaceChildren(this.says, this.meter, this.facts);
    this.known = "";
  }

  show(status) {
    const tuner = status.tuner;
    say(byId("tuner-state"), tuner.state.replaceAll("_", " "));
    byId("tuner-state").hidden = false;
    byId("tuner-state").dataset.state = tuner.state;
    say(this.says, sentence(tuner));
    this.showGap(tuner);
    const facts = [["strategy", `${tuner.strategy}, alpha ${tuner.alpha}`], ["objective", tuner.objective === "auto" ? `auto: ${tuner.serves} now` : tuner.objective]];
    if (tuner.run) facts.push(["search", `number ${tuner.run}, ${plural(tuner.trials, "trial")}`]);
    if (tuner.best_plan) facts.push(["best plan", tuner.best_plan], ["its stages allow", `${digits(tuner.best_throughput_fps)} frames/s, latency ${milliseconds(tuner.best_latency_s)} (unloaded)`]);
    for (const [objective, plan] of Object.entries(tuner.plans ?? {})) {
      if (plan && plan.plan !== tuner.best_plan) facts.push([`best for ${objective}`, `${digits(plan.throughput_fps)} frames/s, ${milliseconds(plan.latency_s)}: ${plan.plan}`]);
    }
    facts.push(["since the start", `${plural(tuner.trials_total, "trial")}, ${count(tuner.moves_total)} layers moved`]);
    const key = JSON.stringify(facts);
    if (key === this.known) return;
    this.known = key;
    this.facts.replaceChildren(...facts.flatMap(([name, text]) => [el("dt", { textContent: name }), el("dd", { textContent: text })]));
  }

  /** The best plan against the bound, by the objective of the search. */
  showGap(tuner) {
    if (tuner.run_objective === "energy") {
      this.meter.hidden = !tuner.best_energy_j;
      this.gauge.hidden = true;
      if (tuner.best_energy_j) say(this.gap, `best so far: ${digits(1e3 * tuner.best_energy_j)} mJ a frame, by described power`);
      return;
    }
    const best = tuner.run_objective === "latency" ? tuner.best_latency_s : tuner.best_throughput_fps && 1 / tuner.best_throughput_fps;
    const bound = tuner.lower_bound_s;
    this.meter.hidden = !best;
    if (!best) return;
    this.gauge.hidden = !bound;
    if (!bound) {
      say(this.gap, `best so far: ${milliseconds(best)} a frame`);
      return;
    }
    this.gauge.firstChild.style.width = `${Math.min(100, (100 * bound) / best)}%`;
    const over = best / bound - 1;
    const gap = over > 0.001 ? `${percent(over)} above the least that costs allow, ${milliseconds(bound)}`
      : over < -0.001 ? `faster than the ${milliseconds(bound)} that costs had predicted as the least` : "the least that costs allow";
    say(this.gap, `best ${milliseconds(best)} a frame: ${gap}`);
  }
}
