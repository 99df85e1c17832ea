// Builds elements. Text is always text: nothing that comes from a database is markup.

import { FORMULAS } from "./formulas.js";

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined)
      made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((one) => one !== null && one !== undefined));
  return made;
}

// A name that tells how its number comes about when it is chosen.
export function formula(key, shown) {
  const told = FORMULAS[key];
  if (!told) return document.createTextNode(shown);
  return el("button", { type: "button", onclick: () => show(shown, told) }, shown);
}

function show(title, { text, query }) {
  document.getElementById("formula-title").textContent = title;
  document.getElementById("formula-text").textContent = text;
  document.getElementById("formula-query").textContent = query;
  document.getElementById("formula").showModal();
}

// columns: [key of its formula, heading, is a number]
export function table(columns, rows) {
  return el(
    "div",
    { class: "scroll", tabindex: "0" },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, columns.map(([key, heading, isNumber]) =>
        el("th", { scope: "col", class: isNumber ? "number" : null }, formula(key, heading))))),
      el("tbody", {}, rows.map((cells) =>
        el("tr", {}, cells.map((cell, at) =>
          el("td", { class: columns[at][2] ? "number" : null }, cell ?? "–"))))),
    ),
  );
}

export function empty(...text) {
  return el("p", { class: "empty" }, ...text);
}

export const whole = (number) =>
  number === null || number === undefined ? "–" : Math.round(number).toLocaleString("en");

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size < 1) return `${Math.round(value * 1000)} ms`;
  if (size < 120) return `${value.toFixed(1)} s`;
  if (size < 7200) return `${Math.round(value / 60)} min`;
  if (size < 172800) return `${Math.round(value / 3600)} h`;
  return `${whole(value / 86400)} d`;
}

export const moment = (text) => (text ? text.replace("T", " ").replace(/\.\d+/, "").replace("+00:00", "Z") : "–");

export async function ask(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.saw ?? answer.statusText), body);
  return body;
}

export const of = (pipeline, rest) =>
  `api/pipelines/${encodeURIComponent(pipeline)}/${rest}`;
