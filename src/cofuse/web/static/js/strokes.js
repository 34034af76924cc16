// The strokes of a result. The server keeps all of them, those in its picture and those that are not
// applied yet: they stay with the result when another one is opened, or the page is closed.

const isPrefix = (part, whole) => part.every((stroke, index) => stroke === whole[index]);

export class Strokes {
  list = []; // all, in their order; another array after every change
  undone = [];
  applied = 0; // so many, from the first, are in the server's picture
  problem = ""; // why the server does not keep them
  #wanted = 0; // so many are to be in it
  #known = this.list; // what the server keeps
  #version = null; // the server's number of that list
  #tiles = 0; // the version of the picture that is on the screen
  #picture = { version: 0, count: 0 }; // the newest picture, and how many strokes are in it
  #before = this.#picture;
  #queue = Promise.resolve(); // one request at a time, each with what is true when its turn comes

  /** `server` asks for and sends strokes; `changed(job)` is called after every answer. */
  constructor(id, server, changed) {
    this.id = id;
    this.server = server;
    this.changed = changed;
    this.refresh();
  }

  /** Strokes wait to be applied, or to be taken out of the picture. */
  get sending() {
    return this.#wanted !== this.applied;
  }

  get waiting() {
    return this.list.length - this.#wanted;
  }

  get unsaved() {
    return this.list !== this.#known || this.sending;
  }

  /** Those that the tiles on the screen do not have. */
  get drawn() {
    return this.list.slice((this.#tiles >= this.#picture.version ? this.#picture : this.#before).count);
  }

  /** The tiles of a version of the picture are on the screen. */
  settle(version) {
    this.#tiles = version;
  }

  add(stroke) {
    this.undone = [];
    return this.#change([...this.list, stroke]);
  }

  undo() {
    this.undone = [...this.undone, this.list.at(-1)];
    return this.#change(this.list.slice(0, -1));
  }

  redo() {
    const stroke = this.undone.at(-1);
    this.undone = this.undone.slice(0, -1);
    return this.#change([...this.list, stroke]);
  }

  /** Take all back; one by one they can be done again. */
  clear() {
    this.undone = [...this.undone, ...[...this.list].reverse()];
    return this.#change([]);
  }

  apply() {
    this.#wanted = this.list.length;
    return this.save();
  }

  #change(list) {
    this.list = list;
    // A stroke that is in the picture already: only the server can take it out.
    this.#wanted = Math.min(this.#wanted, list.length);
    return this.save();
  }

  save() {
    this.#queue = this.#queue.then(() => this.#send());
    return this.#queue;
  }

  /** Ask for the server's list, which another page may have changed. */
  refresh() {
    this.#queue = this.#queue.then(async () => {
      if (this.#version !== null && this.unsaved) return; // sending tells as well
      await this.#ask();
      this.changed(null);
    });
    return this.#queue;
  }

  async #ask() {
    try {
      const theirs = await this.server.strokes(this.id);
      if (theirs.version !== this.#version) this.#take(theirs);
      this.problem = "";
    } catch (error) {
      this.problem = error.message;
    }
  }

  /** The server's list; what was added here since comes after it. */
  #take({ strokes, applied, version }) {
    const added = isPrefix(this.#known, this.list) ? this.list.slice(this.#known.length) : [];
    this.#known = strokes;
    this.#version = version;
    this.list = added.length ? [...strokes, ...added] : strokes;
    this.applied = applied;
    this.#wanted = applied;
    this.#picture = { version: 0, count: applied };
    this.#before = this.#picture;
  }

  async #send() {
    if (this.#version === null) await this.#ask();
    if (this.#version === null || !this.unsaved) {
      this.changed(null);
      return;
    }
    const list = this.list;
    const applied = this.#wanted;
    try {
      const job = await this.server.sendStrokes(this.id, { strokes: list, applied, version: this.#version });
      this.#known = list;
      this.#version += 1;
      this.applied = applied;
      if (job.retouched !== this.#picture.version) {
        this.#before = this.#picture;
        this.#picture = { version: job.retouched, count: applied };
      }
      this.problem = "";
      this.changed(job);
    } catch (error) {
      await this.#refused(error);
    }
  }

  async #refused(error) {
    const version = this.#version;
    const theirs = await this.server.strokes(this.id).catch(() => null);
    if (theirs) this.#take(theirs);
    this.#wanted = Math.min(this.applied, this.list.length);
    const elsewhere = this.#version !== version;
    this.problem = elsewhere ? "another page has changed the strokes" : error.message;
    this.changed(null);
    if (elsewhere) await this.#send();
  }
}
