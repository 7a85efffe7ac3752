// Elements, and figures in words. Whatever comes from the daemon is text, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties, and children that are elements or text. */
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same in SVG, where everything is an attribute. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) element.addEventListener(event, call);
    else if (name in element && !(element instanceof SVGElement)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Set the text of an element, if it has another. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
  return element;
}

/** Three digits. */
export function digits(value) {
  if (!Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 999.5) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

export function milliseconds(seconds) {
  return seconds === null || seconds === undefined ? "–" : `${digits(seconds * 1e3)} ms`;
}

export const count = (number) => number.toLocaleString("en");

export function percent(share) {
  return `${digits(share * 100)}%`;
}

export function clock(time_s) {
  return new Date(time_s * 1e3).toLocaleTimeString("en-GB");
}

export function duration(seconds) {
  if (seconds < 90) return `${Math.floor(seconds)} s`;
  if (seconds < 5400) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} days`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** Buttons of which one is on. */
export function choice(holder, options, chosen, changed) {
  const buttons = Object.entries(options).map(([value, text]) =>
    el("button", { type: "button", textContent: text, on: { click: () => choose(value) } }));
  const choose = (value) => {
    Object.keys(options).forEach((key, i) => buttons[i].setAttribute("aria-pressed", String(key === value)));
    changed(value);
  };
  holder.replaceChildren(...buttons);
  Object.keys(options).forEach((key, i) => buttons[i].setAttribute("aria-pressed", String(key === chosen)));
}
