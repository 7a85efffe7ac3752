// A client of shisha-rt in JavaScript, over plain ZeroMQ: npm install, then: node client.js [ENDPOINT] [FRAMES]
// docs/wire.md says all that it can ask for; docs/examples.md what this does.

import { Dealer } from "zeromq";

const IN_FLIGHT = 8; // a pipeline is only as fast as it is full

class DaemonError extends Error {
  constructor({ code, message }) {
    super(`${code}: ${message}`);
    this.code = code; // programs go by it, the message is for people
  }
}

class Client {
  #socket = new Dealer({ linger: 0, heartbeatInterval: 1000, heartbeatTimeout: 5000 });
  #waiting = new Map(); // id -> { resolve, reject } of a request that is not answered yet
  #sent = Promise.resolve(); // ZeroMQ takes one message after the other
  #lastId = 0;

  constructor(endpoint) {
    this.#socket.connect(endpoint);
    this.#read();
  }

  // Any operation: the fields of its answer, and its tensors' bytes.
  ask(op, fields = {}, tensors = []) {
    const id = String(++this.#lastId);
    const header = JSON.stringify({ op, id, ...fields });
    this.#sent = this.#sent.then(() => this.#socket.send([header, ...tensors]));
    const answer = new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#sent.catch(reject);
    });
    answer.catch(() => {}); // whoever awaits it hears of it
    return answer;
  }

  // One frame of a model of one FP32 input and one FP32 output. Answers of a stream come in the order of its frames.
  async infer(model, values, stream) {
    const [input] = model.inputs;
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    const parameters = { stream, deadline_ms: 10000 };
    const inputs = [{ ...input, parameters: { binary_data_size: bytes.length } }];
    const [header, output] = await this.ask("infer", { model_name: model.name, inputs, parameters }, [bytes]);
    // A copy begins where a float may begin, which the part of a message need not.
    return { header, output: new Float32Array(new Uint8Array(output).buffer) };
  }

  async #read() {
    for await (const [header, ...tensors] of this.#socket) {
      const answer = JSON.parse(header.toString());
      const waiting = this.#waiting.get(answer.id);
      if (waiting === undefined) continue; // nobody waits for it any more
      this.#waiting.delete(answer.id);
      if (answer.error) waiting.reject(new DaemonError(answer.error));
      else waiting.resolve([answer, ...tensors]);
    }
  }

  close() {
    this.#socket.close();
  }
}

const [endpoint = "tcp://127.0.0.1:5555", frames = "20"] = process.argv.slice(2);
const client = new Client(endpoint);
try {
  const [model] = await client.ask("model_metadata");
  const [input] = model.inputs;
  console.log(`${model.name}: ${input.name} ${input.datatype} [${input.shape}]`);

  const size = input.shape.reduce((product, side) => product * side, 1);
  const waiting = [];
  const begun = performance.now();
  for (let number = 0; number < Number(frames) + IN_FLIGHT; number++) {
    if (number >= IN_FLIGHT) {
      const { header, output } = await waiting.shift();
      const { epoch } = header.parameters;
      console.log(`frame ${number - IN_FLIGHT}: ${output.length} values, the first ${output[0]}, of epoch ${epoch}`);
    }
    if (number < Number(frames)) {
      waiting.push(client.infer(model, new Float32Array(size).fill(number), "camera"));
    }
  }
  console.log(`${(performance.now() - begun).toFixed(1)} ms for ${frames} frames`);
} catch (error) {
  if (!(error instanceof DaemonError)) throw error;
  console.error(error.message);
  process.exitCode = 1;
} finally {
  client.close();
}
