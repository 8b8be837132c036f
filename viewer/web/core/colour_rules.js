// @ts-check
// Colours a person gives to procedures, PATTERN = #rrggbb a line: in the URL, and remembered by the
// browser for links that have none. The server matches them, as hpcd render --colour does.

import { messageOf } from "./failure.js";
import { select } from "../widgets/elements.js";

const KEY = "hpcd.colours";

export function rememberedColourRules() {
  try { return localStorage.getItem(KEY) || undefined; } catch { return undefined; }
}

/**
 * Returns what opens the dialog.
 * @param {HTMLDialogElement} dialog
 * @param {object} page
 * @param {Store} page.store
 * @param {(text: string | undefined) => Promise<void>} page.change takes over the rules, or rejects them and changes nothing
 */
export function colourRulesDialog(dialog, { store, change }) {
  const text = select(dialog, "textarea", HTMLTextAreaElement);
  const wrong = select(dialog, "output", HTMLOutputElement);
  const form = select(dialog, "form", HTMLFormElement);
  form.addEventListener("submit", async (event) => {
    if (!(event.submitter instanceof HTMLButtonElement) || event.submitter.value !== "apply") return;
    event.preventDefault();
    const wanted = text.value.trim() || undefined;
    try {
      await change(wanted);
    } catch (error) {
      wrong.textContent = messageOf(error);
      return;
    }
    try { if (wanted) localStorage.setItem(KEY, wanted); else localStorage.removeItem(KEY); } catch { /* not remembered then */ }
    dialog.close();
  });
  return () => {
    text.value = store.state.colours ?? "";
    wrong.textContent = "";
    dialog.showModal();
    text.focus();
  };
}
