// What fires, as a badge with the text; the alerts service has written it down.

import { el, moment } from "./elements.js";

export function alertsOf(one) {
  if (!one.alerts.length) return null;
  return el("ul", { class: "alerts" },
    one.alerts.map(({ rule, severity, told, fired_at }) =>
      el("li", { class: severity }, el("strong", {}, rule), ` ${told}`,
        el("span", { class: "quiet" }, ` since ${moment(fired_at)}`))));
}
