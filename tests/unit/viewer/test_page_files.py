"""The page's modules as one script, as a JavaScript engine runs it."""

from __future__ import annotations

import re
import subprocess

import pytest

from hpcd.errors import HpcdError
from hpcd.viewer.server.page_files import page_script

MODULES = {
    "core/app.js": """import { twice, Half } from "../numbers/twice.js";
import { FOUR } from "./four.js";
// A comment.
const NAME = "the page's own"; // another
/**
 * A third,
 */
const QUOTED = /** @type {string} */ (`//`);
  /** A fourth. */
await null;
console.log(NAME, twice(FOUR), new Half(FOUR).value);
""",
    "core/four.js": """import { NAME, twice } from "../numbers/twice.js";
export const FOUR = twice(2);
console.log(NAME);
""",
    "numbers/twice.js": """export const NAME = "twice";
export function twice(value) { return 2 * value; }
export class Half { constructor(value) { this.value = value / 2; } }
export async function unused() {}
""",
    "unused.js": "console.log('not imported');",
}


def test_modules_run_once_each_after_what_they_import() -> None:
    script = page_script(MODULES, "core/app.js")
    command = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("twice\nthe page's own 8 2\n", "")
    assert not re.search("A comment|third|fourth", script) and "another" in script


@pytest.mark.parametrize(
    "text",
    ['import four from "./four.js";', 'import "./four.js";', "export default 4;",
     "export { a };", 'import { FIVE } from "./four.js";',
     'import { app } from "./app.js";', 'import { a } from "./none.js";'],
)  # fmt: skip
def test_modules_that_are_written_otherwise_are_refused(text: str) -> None:
    with pytest.raises(HpcdError, match="js: "):
        page_script({**MODULES, "core/app.js": text}, "core/app.js")
