// The kinds of the journal's events: which are marks on the charts, and what they look like.

const GLYPHS = {
  plan_live: "◆", plan_refused: "◇", plan_dropped: "◇", replan: "◆",
  worker_gone: "✕", place_given_up: "✕", place_missed: "✕", part_failed: "✕",
  place_down: "▼", place_up: "▲", place_is_back: "▲", place_speed: "△", device_speed: "△", device_ratio: "△", drift: "△",
  tuning_began: "▷", tuning_resumed: "▷", tuning_paused: "‖", tuning_ended: "■", objective_changed: "⇄",
  comparison_began: "▷", comparison_ended: "■", host_came: "▲", host_lost: "✕",
  ready: "▲", draining: "■",
};
const BAD = ["worker_gone", "worker_killed", "place_given_up", "place_missed", "part_failed", "plan_refused", "profiling_failed", "host_lost", "model_ended", "model_given_up", "tuner_died", "placer_died", "profiler_died", "http_died", "tracer_died", "cluster_died"];
const ROUTINE = ["worker_started", "plan_preparing", "placement_solved", "placed_at_once"];
const GROUPS = {
  trials: ["trial", "tuning_began", "tuning_ended", "tuning_paused", "tuning_resumed", "drift", "comparison_began", "plans_compared", "comparison_ended", "own_frames_began", "own_frames_ended", "profiling_began", "measuring_layers", "profiling_ended", "profiling_failed", "profiler_waits", "engines_found"],
  plans: ["plan_live", "plan_refused", "plan_dropped", "replan", "objective_changed", "placement_solved", "placed_at_once", "placement_refused", "plan_preparing"],
  places: ["worker_gone", "worker_killed", "worker_started", "place_given_up", "place_missed", "place_is_back", "place_down", "place_released", "place_up", "place_speed", "device_speed", "device_ratio", "part_failed", "host_came", "host_lost", "link_changed", "places_allotted", "place_dealt", "place_taken_back"],
  daemon: ["ready", "draining", "access_read", "tuner_died", "placer_died", "profiler_died", "http_died", "tracer_died", "cluster_died", "model_starting", "model_serves", "model_shadowed", "model_replaced", "model_ended", "model_given_up", "model_unloaded"],
};

export const FILTERS = { main: "what matters", trials: "trials", plans: "plans", places: "places", daemon: "daemon", all: "all" };

/** A plan of the tuner's that goes live is told by the trial that follows, and the end of a worker that is not wanted by its place's. */
export function prepared(event) {
  const isTuners = event.kind === "plan_live" && String(event.proposal).startsWith("tuner");
  return { ...event, isMinor: isTuners || Boolean(event.dismissed) };
}

export function isMark(event) {
  return event.kind === "trial" || (event.kind in GLYPHS && !event.dismissed);
}

export function glyph(event) {
  if (event.kind === "trial") return { better: "●", first: "●", not_better: "○", cannot_run: "✕" }[event.verdict] ?? "○";
  return GLYPHS[event.kind] ?? (event.kind.endsWith("_died") ? "✕" : "·");
}

/** Its colour: "good", "bad", "plan" or none. */
export function tone(event) {
  if (event.kind === "trial") return { better: "good", cannot_run: "bad" }[event.verdict] ?? "";
  if (BAD.includes(event.kind) && !event.dismissed) return "bad";
  return event.kind.startsWith("plan_") || event.kind === "replan" || event.kind === "objective_changed" ? "plan" : "";
}

export function passes(filter, event) {
  if (filter === "all") return true;
  if (filter === "main") return !event.isMinor && !ROUTINE.includes(event.kind);
  return GROUPS[filter].includes(event.kind);
}
