// @ts-check
// What a page shows of its database at once, requested before anything else is there. No module, so
// that the browser runs it as soon as it comes to it: app.js takes the answer.

/**
 * @param {string} db name of the database; unless it is there, the first
 * @param {string | null} [native] "1" for the frames of Python's interpreter
 */
function openingPath(db, native) { return "api/v1/opening?" + new URLSearchParams({ db, ...(native ? { native } : {}) }); }

const firstAnswer = (() => {
  const parameters = new URLSearchParams(location.hash.slice(1));
  return fetch(openingPath(parameters.get("db") ?? "", parameters.get("native")), { headers: { "x-hpcd-token": parameters.get("token") ?? "" } });
})();
firstAnswer.catch(() => {}); // said where it is waited for
