// What happened, as a list: the same as the marks on the charts, and all else.

import { byId, choice, clock, el } from "./dom.js";
import { FILTERS, glyph, passes, tone } from "./events.js";

const MOST = 1000;
const SHOWN = matchMedia("(max-width: 560px)").matches ? 20 : 40;

/** `pointed(event)` is told which line is pointed at or has the focus. */
export class Journal {
  constructor(pointed) {
    this.events = [];
    this.filter = "main";
    this.most = SHOWN;
    this.pointed = pointed;
    this.list = byId("journal");
    this.list.addEventListener("keydown", (event) => this.go(event));
    choice(byId("filter"), FILTERS, this.filter, (value) => { this.filter = value; this.most = SHOWN; this.draw(); });
    this.more = el("button", { type: "button", className: "more", textContent: "earlier ones", on: { click: () => { this.most += 200; this.draw(); } } });
    this.list.after(this.more);
    this.draw();
  }

  /** `isNew`: forget what came before; another daemon's events have the same numbers. */
  add(isNew, events) {
    if (isNew) this.list.replaceChildren();
    this.events = [...(isNew ? [] : this.events), ...events].slice(-MOST);
    this.draw();
  }

  draw() {
    this.list.classList.toggle("causes", this.filter === "all");
    const fitting = this.events.filter((event) => passes(this.filter, event));
    const shown = fitting.slice(-this.most).reverse();
    this.more.hidden = fitting.length <= this.most;
    const known = new Map([...this.list.children].map((item) => [item.dataset.event, item]));
    this.list.replaceChildren(...shown.map((event) => known.get(String(event.event)) ?? this.item(event)));
    this.reach(this.list.contains(document.activeElement) ? document.activeElement : this.list.firstElementChild);
    if (!shown.length) this.list.append(el("li", { className: "empty", textContent: "Nothing of this kind yet." }));
  }

  item(event) {
    const cause = event.cause ? el("span", { className: "quiet cause", textContent: event.cause, title: "what had come to the daemon when it happened" }) : null;
    const item = el("li", { className: tone(event), tabIndex: -1, on: {
      pointerenter: () => this.pointed(event), pointerleave: () => this.pointed(null),
      focus: () => this.pointed(event), blur: () => this.pointed(null),
    } },
      el("time", { textContent: clock(event.time_s), dateTime: new Date(event.time_s * 1e3).toISOString() }),
      el("span", { className: "glyph", textContent: glyph(event) }),
      el("span", { className: "words", textContent: event.words }), cause);
    item.dataset.event = String(event.event);
    return item;
  }

  /** One line is reached by the tab key; from there on, the arrows go. */
  reach(item) {
    for (const other of this.list.children) other.tabIndex = other === item ? 0 : -1;
  }

  go(event) {
    const next = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const item = next && document.activeElement[next];
    if (!item || !this.list.contains(document.activeElement)) return;
    event.preventDefault();
    this.reach(item);
    item.focus();
  }

  /** A mark of the charts is pointed at. */
  highlight(event) {
    for (const item of this.list.children) item.classList.toggle("lit", event !== null && item.dataset.event === String(event.event));
  }
}
