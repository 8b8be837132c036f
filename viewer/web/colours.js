// Colours a person gives to procedures, PATTERN = #rrggbb a line: in the URL, and remembered by the
// browser for links that have none. The server matches them, as hpcd render --colour does.

const KEY = "hpcd.colours";

export function remembered() {
  try { return localStorage.getItem(KEY) || undefined; } catch { return undefined; }
}

// change(text): tries them; rejected where they are wrong, and nothing is changed then.
export function mount(dialog, { store, change }) {
  const [text, wrong] = [dialog.querySelector("textarea"), dialog.querySelector("output")];
  dialog.querySelector("form").addEventListener("submit", async (event) => {
    if (event.submitter?.value !== "apply") return;
    event.preventDefault();
    const wanted = text.value.trim() || undefined;
    try {
      await change(wanted);
    } catch (error) {
      wrong.textContent = error.message;
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
