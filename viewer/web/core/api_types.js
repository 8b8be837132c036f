// @ts-check
// Types of the server's answers; docs/viewer-api.md says what they hold. Nothing here runs,
// and nothing is exported: every module has these types by their names.

/**
 * rows: numbers of lines, that alone have rows.
 * @typedef {Pick<State, "filter" | "sort" | "group" | "all" | "unfolded" | "moved" | "partners"> & { rows?: string }} LineChoice which lines, in which order
 * @typedef {import("./store.js").Window & { rows?: string }} RowWindow lines and time
 *
 * @typedef {{ name: string, unit: string, additive?: boolean }} Metric additive: true where left out
 *
 * @typedef {{ revision: number, recording: boolean, failure: string }} LiveState
 *
 * @typedef {LiveState & { lines: (number | null)[] }} LiveAnswer lines: what the lines asked about are in the newest revision
 *
 * What a tree's nodes are. kinds: where not all are procedures; palette and rest: colours of pictures.
 * short: the names as people read them.
 * @typedef {{ procedures: string[], short?: string[], marks: ArrayLike<number>, colours: ArrayLike<number>, kinds?: ArrayLike<number>, palette?: ArrayLike<number>, rest?: number }} Procedures
 *
 * @typedef {object} Summary a database
 * @property {string} name
 * @property {number} lines how many trace lines there are
 * @property {number} rows how many rows they have with helper threads folded
 * @property {number} duration_ns
 * @property {number} cpus of all hosts
 * @property {Metric[]} metrics
 * @property {string} seen which part of its processes was seen, empty where that was all
 * @property {[number, number, number, number][]} losses measurement, from, to, how many samples were dropped
 * @property {string[]} procedures names of what the tree's nodes are
 * @property {string[]} short the same without what tells none of them apart
 * @property {ArrayLike<number>} kinds of these: 0 procedure, 1 inlined call, LOOP
 * @property {ArrayLike<number>} marks of procedures: BLOCKED, INTERRUPT, others or 0
 * @property {ArrayLike<number>} colours of these: red, green << 8, blue << 16, and 1 << 24 where it is one that is told apart
 * @property {ArrayLike<number>} palette the distinct colours
 * @property {number} rest the colour of what has none of these
 * @property {string} rule which procedures own colours, in words
 * @property {boolean} waits whether waits were recorded one by one, with who ended them
 * @property {boolean} python whether it has Python functions
 * @property {string[]} causes why a thread does not run, in words, by their numbers; empty: it does
 * @property {LiveState | null} live of a recording that is followed
 * @property {boolean} present whether the stacks of its processes can be read now
 * @property {Record<string, string[]>} recorded names of the recorded functions by group: io, memory, mpi, probe
 *
 * Parents precede their children; node 0 is the root. Of a database's tree also the owner of each node's colour,
 * its state in two bits and the cause above, and how much it counts among colours; the first nodes, as many as
 * paths says, are call paths, and those behind are further states of theirs.
 * @typedef {{ parent: Uint32Array, procedure: Uint32Array, paths?: number, owner?: Uint32Array, state?: Uint32Array, cost?: Float32Array }} TreeColumns
 *
 * @typedef {TreeColumns & { place: Uint32Array }} ViewColumns place: of each node of the database's tree, where its exclusive cost belongs
 *
 * @typedef {object} Entities what the nodes of a view's tree are
 * @property {string[]} name
 * @property {string[]} short names as people read them
 * @property {number[]} kind 0 procedure, 1 inlined call, LOOP, STATEMENT
 * @property {number[]} procedure the procedure each is in
 * @property {string[]} files
 * @property {number[]} file index of files, 0 where unknown
 * @property {number[]} line 0 where unknown
 * @property {number[]} listed 1 where the view has rows of it
 * @property {number} shared how many rows are of several procedures without names
 *
 * @typedef {object} GridRows the rows of a picture
 * @property {number} h how many
 * @property {number} w columns
 * @property {number | undefined} revision of the database it was made of
 * @property {Uint32Array} lines trace line of each row
 * @property {Uint32Array} places place of each row in the order of lines
 * @property {Uint32Array} folded number of helpers' lines that each row shows; 0: the program's own
 *
 * @typedef {import("./grid.js").Grid} Grid
 *
 * @typedef {{ count: number, lines: number, of: number, partners?: string }} SelectionAnswer count: of rows; lines: of the choice; partners: label of the row whose they are
 *
 * folded: number of helpers' lines that a row shows, 0 for the program's own.
 * @typedef {{ labels: string[], lines: number[], groups: string[], measurements: number[], folded: number[], processes: number[] }} LinesAnswer
 *
 * databases: names of all that are served; db: of this one; depths: null where they are to be requested.
 * @typedef {{ databases: string[], db: string, summary: Summary, cct: TreeColumns, depths: DepthsAnswer | null }} OpeningAnswer
 *
 * What a depth shows: variety in bits, and the largest of its procedures with their shares.
 * @typedef {{ variety: number, procedures: number, shown: [string, number][] }} DepthContent
 * @typedef {{ best: number, depths: DepthContent[] }} DepthsAnswer depths from 1 on; best tells most
 *
 * A cause of a wait. line: of the thread, -1: none; row: the line in whose row it is drawn, at place; null: in none.
 * begin, end: of the longest stretch of it.
 * @typedef {{ kind: string, text: string, seconds: number, line: number, row: number, place: number | null, thread: string, node: number, begin: number, end: number }} WaitCause
 *
 * in_vain: its thread waited on, until a later time.
 * @typedef {{ line: number, row: number, place: number | null, thread: string, node: number, begin: number, end: number, in_vain: boolean, until: number, ended_by: WaitCause[], ended_by_of: number, roots: WaitCause[], roots_of: number }} WaitAnswer
 *
 * A part of a critical path. line, begin, end: of its longest step; row: the line in whose row that is drawn, at place; null: in none.
 * @typedef {{ kind: string, text: string, seconds: number, steps: number, threads: number, thread: string, line: number, row: number, place: number | null, node: number, begin: number, end: number }} CriticalPart
 *
 * Those that pixels show, lists in order of time.
 * @typedef {{ begin: number[], end: number[], line: number[], row: number[], place: (number | null)[], part: number[], of: number }} CriticalSteps
 *
 * kinds: seconds of each; words: what they are called.
 * @typedef {{ begin_s: number, end_s: number, seconds: number, thread: string, threads: number, changes: number, kinds: Record<string, number>, words: Record<string, string>, lines: [string, number][], lines_of: number, parts: CriticalPart[], parts_of: number, steps: CriticalSteps, sentence: string }} CriticalPathAnswer
 *
 * at: where it is to be seen, and a window around it; null where nowhere. row: the line that has the row in which
 * line is drawn, unless every line has one.
 * @typedef {{ line: number, row: number, time: number, t0: number, t1: number }} Telling
 * @typedef {{ kind: string, text: string, value: number, unit: string, share: number, whole: string, place: string, procedure: string, line: number | null, at: Telling | null }} Finding
 * @typedef {{ scene: string, findings: Finding[], costliest: Telling | null }} FindingsAnswer
 *
 * Stretches in order of time, the first of count; place: of the row, -1 where it is folded into one.
 * @typedef {{ count: number, exact: boolean, line: number[], place: number[], begin: number[], end: number[] }} FindAnswer
 *
 * @typedef {{ unit: string, names: string[], values: number[][] }} CurvesAnswer values by name, at even distances
 *
 * @typedef {object} ProfileAnswer
 * @property {number} kind SUMS, TIMES or SAMPLED of selected_profile.js
 * @property {number} pixels how many samples it was estimated from
 * @property {Float64Array[]} values by metric, exclusive cost of each node
 *
 * What a line (its number) or an instruction (its address) costs, by metric.
 * @typedef {{ line: number, address: number, inclusive: Record<string, number>, exclusive: Record<string, number> }} PlaceCosts
 *
 * @typedef {{ file: number, found: string | null, note: string, first: number, text: string[], lines: PlaceCosts[] }} SourceText found: its path here
 *
 * @typedef {object} SourceAnswer lines of a procedure
 * @property {{ file: number, name: string, exclusive: Record<string, number> }[]} files costliest first
 * @property {{ procedure: string, exclusive: Record<string, number> }[]} unplaced
 * @property {SourceText | null} shown
 *
 * @typedef {{ procedure: string, module: string, note: string, instructions: PlaceCosts[], text: [number, string][] }} Listing
 * @typedef {{ code: Listing[] }} AssemblyAnswer
 *
 * @typedef {"sum" | "mean" | "median" | "min" | "max" | "stddev" | "cv" | "imbalance"} Statistic
 *
 * @typedef {object} SortedCosts lines sorted by cost; of many, some at equal distances
 * @property {number[]} place in the order from least to most
 * @property {number[]} value
 * @property {number[]} line
 * @property {string[]} label
 *
 * @typedef {Record<Statistic, number> & { lines: number, helpers: number, with_cost: number, edges: number[], counts: number[], curve: SortedCosts }} OverAnswer a context's cost on each line; all but the sum leave out helper threads
 *
 * @typedef {object} Heat exclusive costs of procedures on lines
 * @property {number} h
 * @property {number} w
 * @property {Uint32Array} lines [h]
 * @property {Uint32Array} procedures [w]
 * @property {Float32Array} values [h * w]
 *
 * @typedef {object} StacksAnswer where threads stand; of each row of the merged tree, parents first:
 * @property {string} headline
 * @property {{ text: string, row: number }[]} findings lines, and the rows they are about; those that begin with spaces belong to the one before
 * @property {string[]} notes
 * @property {number} threads how many there are
 * @property {number[]} parent its number + 1; 0: none
 * @property {number[]} kind 0 frames, 1 what those that stand there do, 2 a thread, 3 how many more
 * @property {string[][]} names of frames with no branch between them; of others one text
 * @property {string[][]} short the same as people read them
 * @property {boolean[]} exact whether the text is true of each thread word by word
 * @property {number[]} threads_of how many stand there or below
 * @property {string[]} processes
 * @property {string[]} since in words
 * @property {(number | null)[]} longest seconds
 * @property {(number | null)[]} line the trace line of a thread
 *
 * @typedef {{ rank: number, line: number, begin: number, end: number, seconds: number, late: number }} WaitingCall late: when the other rank came
 *
 * @typedef {object} WaitGroup waits of one kind at one call path for one rank at one of its own
 * @property {string} kind
 * @property {number} node of the calling context tree, that waited
 * @property {number} delaying_rank that was late
 * @property {number} delaying_node where that was
 * @property {number} count
 * @property {number} seconds
 * @property {WaitingCall[]} worst the longest first
 *
 * @typedef {{ function: string, operations: number, calls: number, seconds: number, bytes: number | null }} CollectiveTotals
 *
 * @typedef {object} CommunicatorTotals
 * @property {number} number
 * @property {string} name
 * @property {number | null} parent
 * @property {number} ranks
 * @property {number[]} members the first of them
 * @property {number[] | null} remote of one between two groups the first of the other group, none where they are not known
 * @property {number[]} dims
 * @property {number} messages
 * @property {number} bytes
 * @property {number} seconds in collective operations
 * @property {CollectiveTotals[]} collectives
 *
 * @typedef {object} MessagesAnswer
 * @property {string} headline
 * @property {string[]} notes
 * @property {number} ranks one more than the highest
 * @property {string} implementation
 * @property {string[]} kinds of matrices
 * @property {number} messages
 * @property {number} bytes
 * @property {number} unknown messages of unknown size
 * @property {number} in_mpi seconds
 * @property {number} waiting seconds
 * @property {{ least: number, most: number, messages: number, bytes: number }[]} sizes
 * @property {CommunicatorTotals[]} communicators
 * @property {number} communicators_of
 * @property {WaitGroup[]} waits most waiting first
 * @property {number} waits_of
 *
 * @typedef {{ rows: number, columns: number, step: number, counts: Float64Array, amounts: Float64Array }} MatrixAnswer step: ranks of a cell each way
 *
 * @typedef {"calls" | "errors" | "read" | "written" | "size" | "seconds" | "shortest" | "longest"} CallSum
 * @typedef {Record<"overall" | "min" | "mean" | "max" | "stddev", number | null>} Bandwidth bytes a second
 * @typedef {Record<CallSum, number> & { name: string, node: number, bandwidth: Bandwidth }} CallGroup node: -1 where it is no call path
 * @typedef {{ by: string, of: number, calls_of: number, exact: boolean, groups: CallGroup[] }} CallTotalsAnswer
 *
 * @typedef {"at_peak" | "at_end" | "touched" | "huge" | "remote" | "mapped" | "released"} MemorySum
 *
 * @typedef {object} ProcessMemory
 * @property {string} name
 * @property {number} pid
 * @property {number | null} rank
 * @property {number} line
 * @property {number} touched
 * @property {number} peak
 * @property {number} peak_ns
 * @property {number} at_end
 * @property {number} huge
 * @property {number} remote
 * @property {number} mapped
 * @property {number} released
 * @property {number} of how many call paths there are
 * @property {(Record<MemorySum, number> & { node: number })[]} paths
 *
 * @typedef {{ of: number, processes: ProcessMemory[] }} MemoryAnswer
 * @typedef {{ name: string[], held: number[], peak: number[], touched: number[], mapped: number[], released: number[] }} MemoryStretches
 *
 * @typedef {{ line: number, begin: number, end: number, group: string, text: string }} CallMark
 * @typedef {{ from: number, to: number, sent: number, received: number, bytes: number, tag: number }} MessageMark
 * @typedef {{ operation: number, line: number, begin: number, end: number, function: string }} CollectiveMark
 *
 * @typedef {{ line: number, begin: number, end: number, rank: number }} WaitMark rank: that was waited for
 * @typedef {{ line: number, begin: number, end: number, name: string, colour: string }} PhaseMark
 *
 * @typedef {object} CallMarksAnswer of phases the list is null where there are too many; what is not known is null
 * @property {Record<string, number>} calls by group; "": of all
 * @property {string[]} drawn groups
 * @property {CallMark[]} call of these
 * @property {number | null} messages
 * @property {MessageMark[] | null} message
 * @property {number | null} collectives
 * @property {CollectiveMark[] | null} collective
 * @property {number | null} phases
 * @property {PhaseMark[] | null} phase
 * @property {WaitMark[]} wait the longest
 *
 * @typedef {object} PhasesAnswer lists with one entry a phase, those that lasted longest first
 * @property {number} of how many there are
 * @property {string[]} name
 * @property {string[]} phase what marks it alone
 * @property {number[]} calls
 * @property {number[]} threads
 * @property {number[]} seconds
 * @property {Record<string, number[]>} costs by metric
 * @property {string[]} notes
 *
 * @typedef {object} Side what is compared
 * @property {string} label
 * @property {string} database
 * @property {number} ranks whose costs are averaged
 * @property {number} size ranks of the whole run, 0 where unknown
 * @property {number} lived_s
 * @property {number | null} begin_ns of parts
 * @property {number | null} end_ns
 *
 * @typedef {Procedures & { sides: Side[], metric: string, unit: string, heading: string, modules: string[] }} ComparisonHead heading: run times, whether they got better, and what was seen of each
 *
 * @typedef {object} ComparisonAnswer
 * @property {ComparisonHead} head
 * @property {Float64Array[]} cost by side, exclusive cost of each context
 * @property {Float64Array[]} variance
 * @property {TreeColumns} cct
 * @property {Uint32Array} owner the innermost context of the program on the way to each
 *
 * @typedef {object} CallsAnswer who called what, by call point
 * @property {{ caller: string, name: string, visits: number[], cost: number[] }[]} calls visits and cost by side
 * @property {number[]} ranks by side
 * @property {number} of how many call points there are
 *
 * A number, ["metric", n], or an operation and its operands: any stands for FormulaTree, which a JSDoc type
 * of its own cannot name.
 * @typedef {number | [string, ...any[]]} FormulaTree
 *
 * @typedef {{ name: string, unit: string, additive: boolean, tree: FormulaTree }} FormulaAnswer
 */
