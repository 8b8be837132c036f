// @ts-check
// What was thrown: JavaScript lets it be anything.

/** @param {unknown} error */
export function messageOf(error) { return error instanceof Error ? error.message : String(error); }

/**
 * Whether a request was given up because another has taken its place: nothing to report.
 * @param {unknown} error
 */
export function isAbort(error) { return error instanceof DOMException && error.name === "AbortError"; }
