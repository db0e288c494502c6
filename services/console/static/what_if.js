// What if: decide the log again under other settings, both histories side by side.

import { ask } from "./api.js";
import { element, field, table } from "./elements.js";
import { go } from "./place.js";

const COLUMNS = ["", "pods", "ran", "rejected", "unplaced", "mean wait, s", "p99 wait, s", "zones per pod", "zones in use", "fragmentation"];

export class WhatIfView {
  constructor(root) {
    this.change = element("input", { placeholder: "strategy=BestFit", size: "34" });
    this.first = element("input", { placeholder: "from: position or 10m ago" });
    this.run = element("button", { type: "submit" }, "Run");
    this.answer = element("div", { "aria-live": "polite" });
    root.append(
      element(
        "form",
        {
          class: "controls",
          onsubmit: (event) => {
            event.preventDefault();
            go({ change: this.change.value, first: this.first.value });
          },
        },
        field("Change (KEY=VALUE, several divided by spaces)", this.change),
        field("From", this.first),
        this.run,
      ),
      element("p", { class: "subtle" }, "Keys: a scheduler setting such as strategy, cache, rank_by_zones; or policy, scope of all kubelets."),
      this.answer,
    );
  }

  async show(place) {
    const key = `${place.change} ${place.first}`;
    if (!place.change || this.shown === key) return;
    this.shown = key;
    this.change.value = place.change;
    this.first.value = place.first || "";
    this.run.disabled = true;
    this.answer.replaceChildren(element("p", {}, "Playing both histories ..."));
    try {
      const answer = await ask("/what-if", { change: place.change, first: place.first });
      this.answer.replaceChildren(...this.#result(answer));
    } catch (error) {
      this.answer.replaceChildren();
      throw error;
    } finally {
      this.run.disabled = false;
    }
  }

  #result(answer) {
    const rows = answer.sides.map((side) => [
      side.name,
      ...[side.pods, side.ran, side.rejected, side.unplaced, side.wait_mean_s, side.wait_p99_s].map(String),
      side.zones_per_pod ? side.zones_per_pod.toFixed(2) : "-",
      side.zones_used ? side.zones_used.toFixed(1) : "-",
      side.zones_used ? `${(100 * side.fragmentation).toFixed(1)} %` : "-",
    ]);
    const first = answer.first_difference;
    return [
      table("Results", COLUMNS, rows, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
      element("p", {}, `${answer.differs} pods end on another node, or on none.`),
      first
        ? element(
            "section",
            { class: "panel" },
            element("h2", {}, `First different decision: ${first.pod}, after ${first.at_s} s`),
            element("p", {}, `As here: ${first.before}`),
            element("p", {}, `Changed: ${first.after}`),
          )
        : element("p", {}, "Every decision is the same."),
      ...answer.notes.map((text) => element("p", { class: "subtle" }, text)),
    ];
  }
}
