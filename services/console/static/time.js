// Time: what happened around a moment, and two moments side by side.

import { ask } from "./api.js";
import { element, field, table } from "./elements.js";
import { legend, Nodes, ZoneMap } from "./map.js";
import { go } from "./place.js";

const AROUND = 40;

export class TimeView {
  constructor(root) {
    this.sides = [0, 1].map(() => ({
      nodes: new Nodes(),
      map: new ZoneMap((node) => go({ node })),
      title: element("h2", {}),
    }));
    this.other = element("input", {
      placeholder: "position, 10m ago, a time",
      onchange: () => go({ other: this.other.value }),
    });
    this.goTo = element("input", {
      placeholder: "position, 10m ago, a time",
      onchange: () => go({ at: this.goTo.value }),
    });
    this.events = element("div", {});
    this.second = element("div", {}, this.sides[1].title, this.sides[1].map.canvas);
    this.pair = element(
      "div",
      { class: "pair" },
      element("div", {}, this.sides[0].title, this.sides[0].map.canvas),
      this.second,
    );
    root.append(
      element(
        "div",
        { class: "controls" },
        field("Go to", this.goTo),
        field("Compare with", this.other),
      ),
      legend(),
      this.pair,
      this.events,
    );
  }

  async show(place, now) {
    if (document.activeElement !== this.other) this.other.value = place.other || "";
    if (document.activeElement !== this.goTo) this.goTo.value = place.at || "";
    await this.#side(0, place, place.at);
    this.second.hidden = !place.other;
    if (place.other) await this.#side(1, place, place.other);
    const position = this.sides[0].nodes.position || now.position;
    const after = Math.max(0, position - (place.at ? AROUND / 2 : AROUND));
    const answer = await ask("/events", { after, limit: AROUND, node: place.node });
    const rows = answer.events.map((event) => [
      element("a", { href: `#time?at=${event.position}`, "aria-current": event.position === position ? "true" : undefined }, `${event.position}`),
      event.time.slice(11, 23),
      event.pod,
      event.node,
      event.position === position ? element("strong", {}, event.text) : event.text,
    ]);
    const about = place.node ? ` of ${place.node}` : "";
    this.events.replaceChildren(
      place.node ? element("p", {}, element("button", { onclick: () => go({ node: "" }) }, "Events of all nodes")) : "",
      table(`Events${about} around position ${position}`, ["position", "time", "pod", "node", "event"], rows, [0], true),
    );
  }

  async #side(index, place, at) {
    const { nodes, map, title } = this.sides[index];
    await nodes.load({ ...place, at });
    title.textContent = `Position ${nodes.position}, ${nodes.time.replace("T", " ").slice(0, 19)}`;
    map.show(nodes.list(), place.mode || "use", place.node);
  }
}
