// Where conversations live: IndexedDB, with a list of headings apart from the bodies so that the sidebar loads none of
// them. Without IndexedDB (forbidden, or broken) conversations live in memory, and `lasting` is false.

const DATABASE = "hanzo";
const HEADS = "heads";
const BODIES = "bodies";

const asPromise = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

const finished = (transaction) =>
  new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });

/** The conversations of this browser. Other tabs' changes are told by `change` events with the id (`null`: all). */
export class Store extends EventTarget {
  #db;
  #memory = new Map();
  #channel = new BroadcastChannel("hanzo");

  constructor(db) {
    super();
    this.#db = db;
    this.#channel.onmessage = ({ data }) => this.dispatchEvent(new CustomEvent("change", { detail: data.id }));
  }

  static async open() {
    try {
      const request = indexedDB.open(DATABASE, 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore(HEADS, { keyPath: "id" });
        request.result.createObjectStore(BODIES, { keyPath: "id" });
      };
      const db = await asPromise(request);
      db.onversionchange = () => db.close();
      return new Store(db);
    } catch {
      return new Store(null);
    }
  }

  /** Whether what is kept outlasts the tab. */
  get lasting() {
    return this.#db !== null;
  }

  /** The headings `{ id, title, updated }`, newest first. */
  async list() {
    const heads = this.#db
      ? await asPromise(this.#db.transaction(HEADS).objectStore(HEADS).getAll())
      : [...this.#memory.values()].map(head);
    return heads.sort((a, b) => b.updated - a.updated);
  }

  /** A whole conversation, or `null`. */
  async get(id) {
    if (!this.#db) return this.#memory.get(id) ?? null;
    return (await asPromise(this.#db.transaction(BODIES).objectStore(BODIES).get(id))) ?? null;
  }

  async all() {
    return this.#db ? asPromise(this.#db.transaction(BODIES).objectStore(BODIES).getAll()) : [...this.#memory.values()];
  }

  /** Keeps a conversation as it is now. Rejects when the browser has no room. */
  async put(conversation) {
    if (!this.#db) {
      this.#memory.set(conversation.id, conversation);
      return;
    }
    const transaction = this.#db.transaction([HEADS, BODIES], "readwrite");
    transaction.objectStore(HEADS).put(head(conversation));
    transaction.objectStore(BODIES).put(conversation);
    await finished(transaction);
    this.#channel.postMessage({ id: conversation.id });
  }

  async remove(id) {
    this.#memory.delete(id);
    if (!this.#db) return;
    const transaction = this.#db.transaction([HEADS, BODIES], "readwrite");
    transaction.objectStore(HEADS).delete(id);
    transaction.objectStore(BODIES).delete(id);
    await finished(transaction);
    this.#channel.postMessage({ id });
  }

  async clear() {
    this.#memory.clear();
    if (!this.#db) return;
    const transaction = this.#db.transaction([HEADS, BODIES], "readwrite");
    transaction.objectStore(HEADS).clear();
    transaction.objectStore(BODIES).clear();
    await finished(transaction);
    this.#channel.postMessage({ id: null });
  }
}

const head = ({ id, title, updated }) => ({ id, title, updated });

/** Small settings of the page, in localStorage; a browser that forbids it gets them for the tab only. */
export const preferences = {
  read(name, missing) {
    try {
      const text = localStorage.getItem(`hanzo.${name}`);
      return text === null ? missing : JSON.parse(text);
    } catch {
      return missing;
    }
  },
  write(name, value) {
    try {
      localStorage.setItem(`hanzo.${name}`, JSON.stringify(value));
    } catch {
      // Nothing is lost but the preference.
    }
  },
};
