// Which view is shown, and the newest look at all pipelines.

import { listenForAccess } from "./access.js";
import { showActs } from "./acts.js";
import { showBatches } from "./batches.js";
import { showLetters, showReasons } from "./dead_letters.js";
import { el, empty } from "./elements.js";
import { showLetter } from "./letter.js";
import { showLogs } from "./logs.js";
import { showOverview } from "./overview.js";
import { showFigures, showPipeline } from "./pipeline.js";
import { showSteering } from "./steering.js";
import { showTables } from "./tables.js";
import { showWhy } from "./why.js";

const PAGES = [["", "Pipeline"], ["batches", "Batches"], ["dead-letters", "Dead letters"], ["why", "IDs"], ["tables", "Tables"], ["logs", "Logs"], ["steering", "Steering"]];
const view = document.getElementById("view");
let look = null;
let turn = 0;

function place() {
  const [, name = "", page = "", ...rest] = location.hash.split("/").map(decodeURIComponent);
  return { name, page, rest };
}

async function render() {
  const mine = ++turn;
  const { name, page, rest } = place();
  showWhere(name, page);
  document.title = name ? `${name} – Tallyweir` : "Tallyweir";
  // What is asked for may come after somebody has gone elsewhere.
  const target = el("div", {});
  try {
    if (!name) return look ? showOverview(view, look) : undefined;
    if (page === "batches") await showBatches(target, name, rest[0] ?? null);
    else if (page === "dead-letters" && rest.length) await showLetters(target, name, rest[0], Number(rest[1] ?? 0));
    else if (page === "dead-letters") await showReasons(target, name);
    else if (page === "letter") await showLetter(target, name, ...rest);
    else if (page === "logs") await showLogs(target, name, rest[0], rest[1]);
    else if (page === "steering") await showSteering(target, name);
    else if (page === "tables") await showTables(target, name);
    else if (page === "why") await showWhy(target, name, rest[0]);
    else await showPipeline(target, name, look ?? { pipelines: [] });
  } catch (error) {
    target.replaceChildren(empty(error.message), error.fix ? empty(error.fix) : "");
  }
  if (mine !== turn) return;
  view.replaceChildren(target);
  if (name && (!page || page === "steering")) showActs(view, name, look);
  view.querySelector("[autofocus]")?.focus();
}

function showWhere(name, page) {
  document.getElementById("where").replaceChildren(
    ...(name ? PAGES : []).map(([path, title]) =>
      el("a", { href: `#/${encodeURIComponent(name)}${path && `/${path}`}`, "aria-current": path === page ? "page" : null }, title)),
  );
}

function listen() {
  const heard = document.getElementById("heard");
  const source = new EventSource("api/looks");
  source.onmessage = ({ data }) => {
    const isFirst = look === null;
    look = JSON.parse(data);
    heard.textContent = `as of ${new Date().toLocaleTimeString()}`;
    document.getElementById("troubles").replaceChildren(
      ...look.troubles.map(({ code, saw, fix }) => el("p", {}, el("strong", {}, code), ` ${saw} ${fix}`)),
    );
    const { name, page } = place();
    if (!name) showOverview(view, look);
    else if (!page && !isFirst) {
      showFigures(view, name, look);
      showActs(view, name, look);
    }
    else if (!page) render();
    else if (page === "steering") showActs(view, name, look);
  };
  source.onerror = () => {
    heard.textContent = "the monitor does not answer; what is shown is old";
  };
}

window.addEventListener("hashchange", () => {
  render();
  view.focus({ preventScroll: true });
});
listenForAccess(render).catch((error) => { document.getElementById("heard").textContent = error.message; });
listen();
render();
