"""What of a frame is sent by its place in shared memory, and for how long that memory is lent; without a socket."""

from __future__ import annotations

import json
import weakref
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import DTypeLike

from shisha_rt.errors import Error
from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.conversation import Conversation, Outgoing
from shisha_rt.protocol.exceptions import Internal, InvalidArgument, Unavailable, error_for
from shisha_rt.protocol.frame_tensors import LEAST_LENT_BYTES, Answer, Array, Shape
from shisha_rt.protocol.header import (
    AnswerParameters,
    TensorData,
    TensorHeader,
    encode_answer,
    encode_error,
    encode_infer_answer,
)
from shisha_rt.protocol.limits import Limits
from shisha_rt.protocol.request import InferRequest, parse
from shisha_rt.protocol.signature import Signature

LARGE = LEAST_LENT_BYTES // 4
IMAGE = Tensor("image", (1, LARGE), "FP32")
MASK = Tensor("mask", (2, LARGE), "FP32")
SIZE = Tensor("size", (2,), "INT64")
PIXELS = Tensor("pixels", (1, LARGE), "FP32")
CLASS = Tensor("class", (), "INT64")
BOXES = Tensor("boxes", (LARGE, 4), "FP32", open_axes=(0,))
SIGNATURE = Signature("m", (IMAGE, MASK, SIZE), (PIXELS, CLASS, BOXES))


class Shelf:
    """Memory with room for so many arrays: each has an offset of its own, and is known as long as it lives."""

    def __init__(self, room: int = 100) -> None:
        self.room = room
        self.wanted: list[int] = []
        self.met: list[tuple[str | None, str | None]] = []
        self.arrays: list[weakref.ref[Array]] = []

    def empty(self, shape: Shape, dtype: DTypeLike) -> Array | None:
        if len(self.living) >= self.room:
            return None
        array = np.empty(shape, dtype)
        self.arrays.append(weakref.ref(array))
        return array

    def copy(self, array: Array) -> tuple[TensorData, object] | None:
        copy = self.empty(array.shape, array.dtype)
        if copy is None:
            return None
        copy[...] = array
        place = self.find(copy)
        assert place is not None
        return place, copy

    def find(self, array: Array) -> TensorData | None:
        for number, known in enumerate(self.arrays):
            if known() is array:
                return TensorData(None, "token", array.nbytes, number << 20)
        return None

    def want(self, size_bytes: int) -> None:
        self.wanted.append(size_bytes)

    def meet(self, path: str | None, instance: str | None) -> None:
        self.met.append((path, instance))

    def forget(self) -> None:
        self.arrays.clear()

    @property
    def living(self) -> list[int]:
        return [number for number, known in enumerate(self.arrays) if known() is not None]


def talking(shelf: Shelf) -> Conversation:
    conversation = Conversation(shelf)
    conversation.signature = SIGNATURE
    return conversation


def lent(shelf: Shelf, tensor: Tensor) -> Array:
    array = shelf.empty(tensor.shape, np.float32)
    assert array is not None
    array[...] = 7
    return array


def inputs(**given: Array) -> dict[str, Array]:
    plain = {"image": np.ones(IMAGE.shape, np.float32), "mask": np.ones(MASK.shape, np.float32)}
    return {**plain, "size": np.zeros(2, np.int64), **given}


def read(outgoing: Outgoing) -> InferRequest:
    """As the daemon does."""
    request = parse(
        [part if isinstance(part, bytes) else memoryview(part) for part in outgoing.parts], SIGNATURE, Limits()
    )
    assert isinstance(request, InferRequest)
    return request


def sent(conversation: Conversation, outgoing: Outgoing) -> Outgoing:
    conversation.sends(outgoing)
    return outgoing


def result(outgoing: Outgoing, **changed: Any) -> list[bytes]:
    """With the outputs where they were asked for."""
    tensors = [TensorHeader.of(tensor) for tensor in (PIXELS, CLASS)]
    for name, place in read(outgoing).lent_out.items():
        data = TensorData(None, place.token, place.size_bytes, place.offset_bytes)
        tensors = [
            msgspec.structs.replace(tensor, parameters=data) if tensor.name == name else tensor for tensor in tensors
        ]
    tensors = [changed.get(tensor.name, tensor) for tensor in tensors]
    header = encode_infer_answer(outgoing.id, "m", "1", tensors, AnswerParameters(1, 1, 0, 0))
    raw = [bytes(tensor.parameters.binary_data_size or 0) for tensor in tensors]
    return [header, *(part for part in raw if part)]


def test_large_tensors_go_by_their_place_and_small_ones_as_bytes() -> None:
    shelf = Shelf()
    mine = lent(shelf, IMAGE)
    request = read(talking(shelf).infer(inputs(image=mine)))
    assert list(request.tensors) == ["size"]
    assert request.lent_in.keys() == {"image", "mask"}
    assert request.lent_in["image"].offset_bytes == 0  # where it is; the mask has been copied
    assert list(request.lent_out) == ["pixels"]
    assert request.outputs == ("pixels", "class", "boxes")
    assert shelf.wanted == [IMAGE.size_bytes + MASK.size_bytes + PIXELS.size_bytes]


def test_what_is_copied_is_the_array_as_it_was() -> None:
    shelf = Shelf()
    transposed = np.arange(2 * LARGE, dtype=np.float32).reshape(LARGE, 2).T
    outgoing = talking(shelf).infer(inputs(mask=transposed))
    assert np.array_equal(outgoing.lent.copies[1], transposed)  # type: ignore[arg-type]
    assert read(outgoing).lent_in["mask"].size_bytes == transposed.nbytes


@pytest.mark.parametrize("room", range(4))
def test_what_finds_no_room_goes_as_bytes(room: int) -> None:
    request = read(talking(Shelf(room)).infer(inputs()))
    assert len(request.lent_in) + len(request.lent_out) == room
    assert request.tensors.keys() | request.lent_in.keys() == {"image", "mask", "size"}
    assert request.outputs == ("pixels", "class", "boxes")


def test_only_the_outputs_that_are_asked_for_have_room() -> None:
    shelf = Shelf()
    request = read(talking(shelf).infer(inputs(), outputs=["class"]))
    assert (request.outputs, dict(request.lent_out)) == (("class",), {})
    request = read(talking(shelf).infer(inputs(), outputs=["boxes", "pixels"]))
    assert (request.outputs, list(request.lent_out)) == (("boxes", "pixels"), ["pixels"])


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_an_output_of_several_frames_has_room_for_all(frames: int) -> None:
    conversation = Conversation(Shelf())
    conversation.signature = Signature("m", (IMAGE,), (PIXELS,), most_frames=3)
    outgoing = conversation.infer(np.ones((frames, LARGE), np.float32))
    assert outgoing.lent.rooms["pixels"][1].shape == (frames, LARGE)
    (sent_input,) = json.loads(bytes(outgoing.parts[0]))["inputs"]
    assert sent_input["shape"] == [frames, LARGE]


def test_the_id_and_memory_of_an_abandoned_frame_are_free_again_after_a_loss() -> None:
    shelf = Shelf()
    conversation = talking(shelf)
    outgoing = sent(conversation, conversation.infer(inputs(), request_id="a"))
    conversation.abandon("a")
    conversation.lose("gone")
    del outgoing
    assert not any(known() is not None for known in shelf.arrays)
    conversation.signature = SIGNATURE
    conversation.check(conversation.infer(inputs(), request_id="a"))


def test_what_numpy_takes_for_true_is_sent_as_1() -> None:
    """An engine computed something else for other bytes."""
    flags = Signature("m", (Tensor("flags", (2, 2), "BOOL"),), (CLASS,))
    conversation = Conversation()
    conversation.signature = flags
    seen = np.array([[255, 0], [1, 2]], np.uint8).view(np.bool_)
    for array in seen, seen.T, np.asfortranarray(seen):
        _, raw = conversation.infer(array).parts
        np.testing.assert_array_equal(np.frombuffer(raw, np.uint8).reshape(2, 2), np.array(array != 0, np.uint8))


@pytest.mark.parametrize("names", ["class", iter(["class"])])
def test_outputs_may_be_a_name_or_an_iterator(names: Any) -> None:
    """Of an iterator nothing was left for the header, so that all outputs were sent."""
    assert read(talking(Shelf()).infer(inputs(), outputs=names)).outputs == ("class",)


def test_an_answers_array_is_the_room_that_it_was_asked_into() -> None:
    shelf = Shelf()
    conversation = talking(shelf)
    outgoing = sent(conversation, conversation.infer(inputs()))
    outgoing.lent.rooms["pixels"][1][...] = 5  # as a worker does
    ((_, answer),) = conversation.receive(result(outgoing))
    del outgoing
    assert isinstance(answer, Answer)
    assert (answer.outputs["pixels"] == 5).all()
    assert not any(array.flags.writeable for array in answer.outputs.values())
    assert len(shelf.living) == 1  # the copies are not needed any more
    del answer
    assert shelf.living == []


@pytest.mark.parametrize(
    "spoilt",
    [
        TensorHeader("pixels", PIXELS.shape, "FP32", TensorData(None, "token", PIXELS.size_bytes, 77 << 20)),
        TensorHeader("pixels", PIXELS.shape, "FP32", TensorData(None, "another", PIXELS.size_bytes, 2 << 20)),
        TensorHeader("pixels", (2, LARGE // 2), "FP32", TensorData(None, "token", PIXELS.size_bytes, 2 << 20)),
        TensorHeader("class", (), "INT64", TensorData(None, "token", 8, 0)),
    ],
)
def test_an_output_that_is_not_where_it_was_to_go_is_an_internal_error(spoilt: TensorHeader) -> None:
    conversation = talking(Shelf())
    outgoing = sent(conversation, conversation.infer(inputs()))
    ((_, outcome),) = conversation.receive(result(outgoing, **{spoilt.name: spoilt}))
    assert isinstance(outcome, Internal)


def test_memory_of_an_abandoned_frame_is_used_again_only_when_its_answer_has_come() -> None:
    shelf = Shelf()
    conversation = talking(shelf)
    mine = lent(shelf, IMAGE)
    outgoing = sent(conversation, conversation.infer(inputs(image=mine), request_id="left"))
    answer = result(outgoing)
    assert conversation.abandon("left")
    mine[...] = 1  # nobody waits for it
    del outgoing, mine
    assert len(shelf.living) == 3
    with pytest.raises(InvalidArgument, match="in flight"):
        conversation.infer(inputs(), request_id="left")
    assert conversation.receive(answer) == []
    assert shelf.living == []
    conversation.infer(inputs(), request_id="left")


def test_a_refusal_of_an_abandoned_frame_is_an_answer_too() -> None:
    shelf = Shelf()
    conversation = talking(shelf)
    conversation.abandon(sent(conversation, conversation.infer(inputs(), request_id="left")).id)
    assert conversation.receive([encode_error("left", error_for(Error.CANCELLED, ""))]) == []
    assert shelf.living == []


def test_an_array_is_read_only_for_as_long_as_it_is_lent() -> None:
    shelf = Shelf()
    conversation = talking(shelf)
    mine = lent(shelf, IMAGE)
    unsent = conversation.infer(inputs(image=mine))
    mine[...] = 1
    del unsent
    first, second = (sent(conversation, conversation.infer(inputs(image=mine))) for _ in range(2))
    for outgoing in (first, second):
        with pytest.raises(ValueError, match="read-only"):
            mine[...] = 2
        conversation.receive(result(outgoing))
    mine[...] = 3
    third = sent(conversation, conversation.infer(inputs(image=mine)))
    conversation.receive([encode_error(third.id, error_for(Error.DEADLINE_PASSED, ""))])
    mine[...] = 4
    sent(conversation, conversation.infer(inputs(image=mine)))
    assert [type(outcome) for _, outcome in conversation.lose("gone")] == [Unavailable]
    mine[...] = 5


def test_an_array_that_its_owner_has_made_read_only_stays_so() -> None:
    shelf = Shelf()
    conversation = talking(shelf)
    mine = lent(shelf, IMAGE)
    mine.flags.writeable = False
    conversation.receive(result(sent(conversation, conversation.infer(inputs(image=mine)))))
    assert not mine.flags.writeable


def test_a_loss_gives_up_all_that_was_shared() -> None:
    shelf = Shelf()
    conversation = talking(shelf)
    mine = lent(shelf, IMAGE)
    outgoing = sent(conversation, conversation.infer(inputs(image=mine)))
    conversation.abandon(outgoing.id)
    sent(conversation, conversation.infer(inputs(image=mine)))
    conversation.lose("gone")
    conversation.signature = SIGNATURE
    request = read(conversation.infer(inputs(image=mine)))
    assert request.lent_in["image"].offset_bytes == 0  # copied: the first array of a shelf that is empty
    assert (mine == 7).all()


def test_what_was_lent_to_a_daemon_that_is_lost_is_named_to_no_other() -> None:
    """A request may have to wait for a connection, and that may be another one."""
    conversation = talking(Shelf())
    lends, sends = conversation.infer(inputs()), conversation.ask("server_live")
    conversation.check(lends)
    conversation.lose("gone")
    conversation.check(sends)
    with pytest.raises(Unavailable, match="not been run"):
        conversation.check(lends)


def test_a_daemon_is_met_once_and_another_one_anew() -> None:
    shelf = Shelf()
    conversation = Conversation(shelf)
    for instance in ("first", "first", "second"):
        asked = sent(conversation, conversation.ask("server_metadata"))
        conversation.receive([encode_answer(asked.id, {"instance": instance, "shared_memory_socket": f"/{instance}"})])
    asked = sent(conversation, conversation.ask("server_metadata"))
    conversation.receive([encode_answer(asked.id, {"instance": "third"})])
    assert shelf.met == [("/first", "first"), ("/second", "second"), (None, "third")]


def test_a_daemon_that_refuses_what_is_lent_is_asked_whether_it_is_still_the_same() -> None:
    """Behind a proxy it may be another one, which knows none of it."""
    for room, doubts in ((9, True), (0, False)):
        conversation = talking(Shelf(room))
        outgoing = sent(conversation, conversation.infer(inputs()))
        conversation.receive([encode_error(outgoing.id, error_for(Error.UNKNOWN_REGION, "no region has that token"))])
        assert conversation.in_doubt is doubts
        assert conversation.probe() is not None
        assert not conversation.in_doubt
