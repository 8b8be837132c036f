// @ts-check
// Scaling loss of a context (SC 2009, sections 2.3 and 3.1). The same rule as in
// analysis/parallel/scaling.py; tests/data/vectors/scaling.json holds both to it.

/**
 * What a context costs on more ranks beyond what scaling promises.
 * @param {number} baseCost its cost per rank in the run on fewest ranks
 * @param {number} cost its cost per rank in the run looked at
 * @param {number} total cost per rank of everything in the run looked at
 * @param {number} baseSize ranks of the run on fewest ranks
 * @param {number} size ranks of the run looked at
 * @param {boolean} strong whether all ranks together had the same work (strong scaling), or each had (weak)
 * @returns {{ excess: number, loss: number }} excess: cost of all ranks; loss: the same as a share of what the run cost
 */
export function scalingLoss(baseCost, cost, total, baseSize, size, strong) {
  const factor = strong ? size / baseSize : 1;
  const excess = ((factor * cost - baseCost) * size) / factor;
  return { excess, loss: total ? excess / (total * size) : 0 };
}
