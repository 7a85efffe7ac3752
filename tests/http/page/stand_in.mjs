// What the page's scripts need of a browser, as far as tests go: elements, a feed's source, and a clock that stands.

class Names extends Set {
  toggle(name, on = !this.has(name)) {
    if (on) this.add(name);
    else this.delete(name);
  }
}

export class Element {
  constructor(tag) {
    Object.assign(this, { tag, parts: [], calls: {}, dataset: {}, style: {}, classList: new Names(), own: "" });
    for (const name of ["className", "title", "type", "dateTime", "value", "id", "min", "max", "step", "inputMode"]) this[name] = "";
    Object.assign(this, { hidden: false, disabled: false, required: false, tabIndex: 0 });
  }
  get textContent() { return this.own + this.parts.map((part) => part.textContent ?? part).join(""); }
  set textContent(text) { this.own = String(text); this.parts = []; }
  get children() { return this.parts.filter((part) => part instanceof Element); }
  get firstElementChild() { return this.children[0] ?? null; }
  append(...parts) { this.parts.push(...parts); }
  replaceChildren(...parts) { this.own = ""; this.parts = parts; }
  after() {}
  contains(other) { return other === this || this.children.some((child) => child.contains(other)); }
  setAttribute(name, value) { this[name] = value; }
  addEventListener(name, call) { this.calls[name] = call; }
  blur() { if (document.activeElement === this) document.activeElement = null; }
}

export const byId = {};
export const sources = [];
export const timers = new Map();
export const tell = (name, data) => sources.at(-1).calls[name]({ data: JSON.stringify(data), lastEventId: "" });
export const settle = () => new Promise((done) => setImmediate(done));

class Source {
  constructor() { this.calls = {}; sources.push(this); }
  addEventListener(name, call) { this.calls[name] = call; }
  close() {}
}

let number = 0;
Object.assign(globalThis, {
  SVGElement: class {},
  EventSource: Source,
  location: { search: "" },
  matchMedia: () => ({ matches: false }),
  setTimeout: (call) => { timers.set(++number, call); return number; },
  clearTimeout: (which) => timers.delete(which),
  document: {
    activeElement: null,
    hidden: false,
    createElement: (tag) => new Element(tag),
    createElementNS: (_, tag) => new Element(tag),
    getElementById: (id) => (byId[id] ??= new Element(id)),
    addEventListener() {},
  },
});
