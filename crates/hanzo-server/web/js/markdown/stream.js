// Markdown that grows: only the end of the text is read again, and only blocks that changed are told of.

import { parseBlocks } from "./block.js";

/**
 * The blocks of a text that is appended to. A block can still change while it is the last or the last but one: a line
 * that is not complete may turn out to belong to the block before.
 */
export class MarkdownStream {
  #settled = [];
  #open = [];
  #text = "";
  #from = 0;

  /**
   * Takes the whole text so far and returns `{ keep, blocks }`: the first `keep` blocks are as they were, `blocks` are
   * those after them.
   */
  update(text) {
    if (!text.startsWith(this.#text) || text.length < this.#text.length) {
      this.#settled = [];
      this.#from = 0;
    }
    this.#text = text;
    const keep = this.#settled.length;
    const blocks = parseBlocks(text.slice(this.#from));
    const settled = Math.max(0, blocks.length - 2);
    const next = blocks[settled];
    this.#settled = this.#settled.concat(blocks.slice(0, settled));
    this.#open = blocks.slice(settled);
    if (next) this.#from += next.from;
    return { keep, blocks };
  }

  /** All blocks. */
  all() {
    return [...this.#settled, ...this.#open];
  }
}
