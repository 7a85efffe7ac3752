// A client of shisha-rt in C++, over plain ZeroMQ: docs/wire.md says all that it can ask for, docs/examples.md what this does.
// apt-get install libzmq3-dev nlohmann-json3-dev
// g++ -std=c++17 -O2 client.cpp -lzmq -o client && ./client [ENDPOINT] [FRAMES]

#include <zmq.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

using nlohmann::json;
using Part = std::vector<unsigned char>;

constexpr int in_flight = 8;  // a pipeline is only as fast as it is full

struct Answer {
    json header;
    std::vector<Part> tensors;
};

// One connection. Requests may overlap: `send` as many as the daemon takes, then `receive` as many answers.
class Client {
  public:
    explicit Client(const std::string &endpoint)
        : context(zmq_ctx_new(), zmq_ctx_term), socket(zmq_socket(context.get(), ZMQ_DEALER), zmq_close) {
        set(ZMQ_LINGER, 0);
        set(ZMQ_RCVTIMEO, 10000);
        set(ZMQ_HEARTBEAT_IVL, 1000);  // a daemon that has gone is noticed
        check(zmq_connect(socket.get(), endpoint.c_str()));
    }

    void send(const json &header, const std::vector<Part> &tensors = {}) {
        const std::string text = header.dump();
        check(zmq_send(socket.get(), text.data(), text.size(), tensors.empty() ? 0 : ZMQ_SNDMORE));
        for (std::size_t i = 0; i < tensors.size(); ++i)
            check(zmq_send(socket.get(), tensors[i].data(), tensors[i].size(), i + 1 < tensors.size() ? ZMQ_SNDMORE : 0));
    }

    Answer receive() {
        std::vector<Part> parts;
        for (int more = 1; more;) {
            zmq_msg_t message;
            zmq_msg_init(&message);
            check(zmq_msg_recv(&message, socket.get(), 0));
            const auto *data = static_cast<unsigned char *>(zmq_msg_data(&message));
            parts.emplace_back(data, data + zmq_msg_size(&message));
            more = zmq_msg_more(&message);
            zmq_msg_close(&message);
        }
        Answer answer{json::parse(parts.front()), {parts.begin() + 1, parts.end()}};
        if (answer.header.contains("error")) {
            const json &error = answer.header["error"];
            throw std::runtime_error(error["code"].get<std::string>() + ": " + error["message"].get<std::string>());
        }
        return answer;
    }

  private:
    std::unique_ptr<void, int (*)(void *)> context, socket;

    void set(int option, int value) { check(zmq_setsockopt(socket.get(), option, &value, sizeof value)); }

    static void check(int result) {
        if (result < 0) throw std::runtime_error(zmq_strerror(zmq_errno()));
    }
};

// For models of one FP32 input.
int main(int argc, char **argv) try {
    Client client(argc > 1 ? argv[1] : "tcp://127.0.0.1:5555");
    const int frames = argc > 2 ? std::stoi(argv[2]) : 20;

    client.send({{"op", "model_metadata"}, {"id", "metadata"}});
    json model = client.receive().header;
    json input = model["inputs"][0];
    std::size_t count = 1;
    for (std::size_t side : input["shape"]) count *= side;
    std::printf("%s: %s %s\n", model["name"].get<std::string>().c_str(), input["name"].get<std::string>().c_str(),
                input["shape"].dump().c_str());

    const std::size_t size = count * sizeof(float);
    input["parameters"] = {{"binary_data_size", size}};
    for (int number = 0; number < frames + in_flight; ++number) {
        if (number >= in_flight) {  // of a stream they come in order
            const Answer answer = client.receive();
            const Part &output = answer.tensors.at(0);
            float first = 0;
            std::memcpy(&first, output.data(), sizeof first);
            std::printf("frame %s: %zu values, the first %g, of epoch %d\n",
                        answer.header["id"].get<std::string>().c_str(), output.size() / sizeof first, first,
                        answer.header["parameters"]["epoch"].get<int>());
        }
        if (number < frames) {
            const std::vector<float> values(count, static_cast<float>(number));
            Part bytes(size);
            std::memcpy(bytes.data(), values.data(), size);  // little-endian, as the wire is
            client.send({{"op", "infer"},
                         {"id", std::to_string(number)},
                         {"model_name", model["name"]},
                         {"inputs", {input}},
                         {"parameters", {{"stream", "camera"}, {"sequence", number}, {"deadline_ms", 10000}}}},
                        {bytes});
        }
    }
} catch (const std::exception &error) {
    std::fprintf(stderr, "client: %s\n", error.what());
    return 1;
}
