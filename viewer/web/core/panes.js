// @ts-check
// The panes of the page, in the order of their tabs and keys. cli/verbs/view.py has their names, too.

import { Compare } from "../compare/compare.js";
import { mountMessages } from "../messages/messages.js";
import { CostOverLines } from "../profile/cost_over_lines.js";
import { FlameGraph } from "../profile/flame_graph.js";
import { ProfileTable } from "../profile/profile_table.js";
import { Source } from "../profile/source.js";
import { mountRecorded } from "../recorded/recorded.js";
import { Stacks } from "../stacks/stacks.js";
import { mountTrace } from "../trace/trace.js";

/**
 * @typedef {object} PaneEntry
 * @property {string} name in links
 * @property {string} title of its tab
 * @property {(element: HTMLElement, page: PageParts) => Pane} mount
 * @property {string} [shows] a sentence on top of it; of the trace one is made of the recording
 * @property {string[] | "all"} [tells] kinds of findings that it shows something of
 */

/** @type {PaneEntry[]} */
export const PANES = [
  {
    name: "trace", title: "Trace", mount: mountTrace,
    tells: "all",
  },
  {
    name: "flame", title: "Flame graph", mount: (element, page) => new FlameGraph(element, page),
    shows: "Width is cost, outermost frames on top; a click shows a frame in full width.",
    tells: "all",
  },
  {
    name: "calls", title: "Profile", mount: (element, page) => new ProfileTable(element, page),
    shows: "Costs by calling context; a click on a heading sorts by it.",
    tells: "all",
  },
  {
    name: "lines", title: "Over lines", mount: (element, page) => new CostOverLines(element, page),
    shows: "What the chosen context costs on each trace line.",
    tells: ["imbalance", "hot"],
  },
  {
    name: "compare", title: "Compare", mount: (element, page) => new Compare(element, page),
    shows: "The same program, or parts of one run, side by side: what costs more, less, is new or gone.",
  },
  {
    name: "source", title: "Source", mount: (element, page) => new Source(element, page),
    shows: "The code of the procedure chosen last, with what each line or instruction costs.",
    tells: ["hot", "system"],
  },
  {
    name: "stacks", title: "Stacks", mount: (element, page) => new Stacks(element, page),
    shows: "Where every thread stands at one moment, as one tree; a click on a moment of the trace view chooses another.",
  },
  {
    name: "messages", title: "Messages", mount: mountMessages,
    shows: "Who sent how much to whom, and who waited for whom; a click on a wait state puts the crosshair there.",
    tells: ["messages", "communication"],
  },
  {
    name: "recorded", title: "Calls", mount: mountRecorded,
    shows: "What recorded calls did: bytes, time and bandwidth by what they have in common, and the growth of memory.",
    tells: ["io", "memory"],
  },
];
