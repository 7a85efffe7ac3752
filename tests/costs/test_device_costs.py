"""Formulas of device descriptions, and every ratio of DCG-2024 that the shipped ones were made for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import pytest

from shisha_rt.costs.device_costs import fused_costs, operator_cost_s, transfer_bytes, transfer_cost_s, transfer_legs_s
from shisha_rt.machine.config.device_files import devices_of
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.device import Condition, Device, DirectLink, Family, Fusion, Multiple, Resource, Term, Transfer
from shisha_rt.model.graph import Graph, Operator, Tensor
from tests.costs.networks import chain
from tests.model.single_operator import Shape, single_operator

BOARD = load_machine("pim-board")
CPU_S, CPU_P, PIM = devices_of(BOARD, BOARD.places[0])
ROWS: Final = (8, 16, 32, 64)  # the paper's sequence lengths p


def cost_s(graph: Graph, device: Device) -> float:
    return operator_cost_s(graph, graph.operators[0], device)


def device(*families: Family, **rest: object) -> Device:
    return Device("d", "d.toml", "onnxruntime", "m", "fp32", 1.0, families, **rest)  # type: ignore[arg-type]


def any_of(*terms: Term) -> Family:
    return Family(frozenset(), (), terms)


class TestFormulas:
    def test_a_sum_of_terms_and_the_call(self) -> None:
        graph = single_operator("MatMul", [(2, 3), (3, 5)], (2, 5))
        terms = Term(0.5, (("rows", 1), ("inner", 2))), Term(0.25, (("elements_out", 1),)), Term(4.0)
        assert cost_s(graph, device(any_of(*terms))) == 1.0 + 0.5 * 2 * 9 + 0.25 * 10 + 4.0

    def test_fractions_and_negative_powers(self) -> None:
        graph = single_operator("Relu", [(16,)], (16,))
        terms = Term(1.0, (("elements_out", 0.5),)), Term(1.0, (("elements_in", -1),))
        assert cost_s(graph, device(any_of(*terms))) == 1.0 + 4.0 + 1 / 16

    def test_an_empty_tensor_counts_as_one_element(self) -> None:
        graph = single_operator("Relu", [(0,)], (0,))
        assert cost_s(graph, device(any_of(Term(2.0, (("elements_out", -1),))))) == 3.0

    def test_a_product_that_takes_more_than_there_is_cannot_run(self) -> None:
        of_weights = Resource("cells", 15.0, (Term(0.5, (("inner", 1), ("columns", 1))), Term(5.0)))
        limited = device(any_of(), resources=(of_weights,))
        assert cost_s(single_operator("MatMul", [(9, 4), (4, 5)], (9, 5)), limited) == 1.0
        assert cost_s(single_operator("MatMul", [(1, 3), (3, 7)], (1, 7)), limited) == math.inf
        assert cost_s(single_operator("Relu", [(99, 99)], (99, 99)), limited) == 1.0

    def test_the_first_family_that_fits(self) -> None:
        gemm = frozenset({"Gemm"})
        both = (
            Family(gemm, (Condition("transB", 1, default=0),), (Term(10.0),)),
            Family(gemm, (), (Term(20.0),)),
            any_of(Term(30.0)),
        )
        shapes: list[Shape] = [(2, 2), (2, 2)]
        assert cost_s(single_operator("Gemm", shapes, (2, 2), {"transB": 1}), device(*both)) == 11.0
        assert cost_s(single_operator("Gemm", shapes, (2, 2)), device(*both)) == 21.0
        assert cost_s(single_operator("Add", shapes, (2, 2)), device(*both)) == 31.0

    def test_an_attribute_left_out_has_its_default(self) -> None:
        family = Family(frozenset({"Gemm"}), (Condition("transB", 0, default=0),), ())
        graph = single_operator("Gemm", [(2, 2), (2, 2)], (2, 2))
        assert cost_s(graph, device(family)) == 1.0
        no_default = Family(frozenset({"Gemm"}), (Condition("transB", 0, default=None),), ())
        assert cost_s(graph, device(no_default)) == math.inf

    @pytest.mark.parametrize(
        ("graph", "rest"),
        [
            (single_operator("Sub", [(2,)], (2,)), {}),
            (single_operator("Add", [(2,)], (2,), domain="com.microsoft"), {}),
            (single_operator("Add", [(2,)], (2,), datatype="INT64"), {"datatypes": frozenset({"FP32"})}),
            (single_operator("Add", [(1, 1, 2)], (1, 1, 2)), {"max_rank": 2}),
            (single_operator("Add", [(1, 1, 2), (2,)], (1, 1, 2)), {"max_rank": 2}),
        ],
    )
    def test_what_a_device_cannot_run(self, graph: Graph, rest: dict[str, object]) -> None:
        assert cost_s(graph, device(Family(frozenset({"Add"}), (), ()), **rest)) == math.inf

    @pytest.mark.parametrize(
        ("op", "channels", "kernel", "group", "able"),
        [
            ("Conv", 16, (32, 16, 1, 1), 1, True),
            ("Conv", 3, (32, 3, 1, 1), 1, False),
            ("Conv", 16, (8, 16, 1, 1), 1, False),
            ("Conv", 32, (64, 1, 1, 1), 32, True),  # channels count over all groups
            ("Conv", 8, (64, 1, 1, 1), 8, False),
            ("ConvTranspose", 48, (48, 1, 1, 1), 16, True),
            ("ConvTranspose", 48, (48, 8, 1, 1), 1, False),
        ],
    )
    def test_multiples_of_channels(self, op: str, channels: int, kernel: Shape, group: int, able: bool) -> None:
        filters = kernel[0] if op == "Conv" else kernel[1] * group
        graph = single_operator(op, [(1, channels, 4, 4), kernel], (1, filters, 4, 4), {"group": group})
        multiples = Multiple("in_channels", 16), Multiple("filters", 16)
        family = Family(frozenset({op}), (), (), multiples)
        assert cost_s(graph, device(family)) == (1.0 if able else math.inf)

    def test_transfers(self) -> None:
        tensor = Tensor("t", (10,), "FP32")
        host = device()
        first = Device(
            "a",
            "",
            "onnxruntime",
            "a",
            "bf16",
            0.0,
            (),
            transfer_in=Transfer(1.0, 10.0),
            transfer_out=Transfer(2.0, 5.0),
        )
        second = Device(
            "b",
            "",
            "onnxruntime",
            "b",
            "fp32",
            0.0,
            (),
            transfer_in=Transfer(7.0, 40.0),
            transfer_out=Transfer(0.0, 1.0),
        )
        assert transfer_cost_s(tensor, host, host) == 0.0
        assert transfer_cost_s(tensor, host, first) == 1.0 + 20 / 10
        assert transfer_cost_s(tensor, first, host) == 2.0 + 20 / 5
        assert transfer_cost_s(tensor, first, second) == 2.0 + 20 / 5 + 7.0 + 40 / 40  # through the host
        link = DirectLink("b", Transfer(0.5, 10.0))
        linked = replace(first, links=(link,))
        for source, target in ((linked, second), (second, linked)):  # in bf16, the narrower
            assert transfer_legs_s(tensor, source, target) == (0.0, 0.5 + 20 / 10)
        assert transfer_cost_s(tensor, linked, host) == 2.0 + 20 / 5
        slow = replace(first, links=(replace(link, transfer=Transfer(14.0, 10.0)),))
        assert transfer_legs_s(tensor, slow, second) == (2.0 + 20 / 5, 7.0 + 40 / 40)

    @pytest.mark.parametrize(
        ("datatype", "expected"), [("FP64", 2), ("FP32", 2), ("FP16", 2), ("INT64", 8), ("BOOL", 1)]
    )
    def test_only_floats_are_converted(self, datatype: str, expected: int) -> None:
        assert transfer_bytes(Tensor("t", (1,), datatype), PIM) == expected


def row_of(*operators: tuple[str, tuple[str, ...], tuple[str, ...]], ends: tuple[str, ...] = ()) -> Graph:
    """Of (type, inputs, outputs): names in capitals are constants, `x` the input; all tensors are of 2 elements."""
    listed = tuple(Operator(f"op{i}", op, "", read, made, {}) for i, (op, read, made) in enumerate(operators))
    names = {name for operator in listed for name in (*operator.inputs, *operator.outputs) if name}
    tensors = {name: Tensor(name, (2,), "FP32") for name in sorted(names)}
    run_time = {name: tensor for name, tensor in tensors.items() if name.islower()}
    constants = {name: tensor for name, tensor in tensors.items() if name.isupper()}
    outputs = tuple(tensors[name] for name in (*ends, listed[-1].outputs[0]))
    return Graph("row", listed, (tensors["x"],), outputs, run_time, constants)


class TestFused:
    ADD_RELU: Final = device(Family(frozenset({"Add"}), (), (Term(2.0),)), fusions=(Fusion(("Add", "Relu")),))

    @pytest.mark.parametrize(
        ("graph", "spans"),
        [
            (row_of(("Add", ("x", "W"), ("a",)), ("Relu", ("a",), ("b",))), [(0, 1)]),
            (row_of(("Relu", ("x",), ("a",)), ("Add", ("a", "a"), ("b",)), ("Relu", ("b",), ("c",))), [(1, 2)]),
            (row_of(("Add", ("x", "W"), ("a",)), ("Relu", ("a",), ("b",)), ("Add", ("b", "a"), ("c",))), []),
            (row_of(("Add", ("x", "W"), ("a",)), ("Relu", ("a",), ("b",)), ends=("a",)), []),
            (row_of(("Add", ("x", "W"), ("a",)), ("Relu", ("x",), ("b",))), []),
            (row_of(("Add", ("x", "W"), ("a",)), ("Neg", ("a",), ("b",))), []),
            (row_of(("Add", ("x", "W"), ("a", "e")), ("Relu", ("a",), ("b",))), []),
            # parted by another operator, as a change of device might part them
            (
                row_of(
                    ("Add", ("x", "W"), ("a",)),
                    ("Neg", ("x",), ("b",)),
                    ("Relu", ("a",), ("c",)),
                    ("Sum", ("b", "c"), ("d",)),
                ),
                [],
            ),
        ],
    )
    def test_a_chain_that_nothing_else_reads(self, graph: Graph, spans: list[tuple[int, int]]) -> None:
        assert list(fused_costs(graph, self.ADD_RELU)) == [(span, 3.0) for span in spans]

    def test_the_first_one_s_formula_and_terms_and_the_call_once(self) -> None:
        conv = Family(frozenset({"Conv"}), (), (Term(0.5, (("rows", 1),)),), (Multiple("filters", 4),))
        fusions = Fusion(("Conv", "Relu"), (Term(0.25, (("columns", 1),)),)), Fusion(("Conv", "Relu", "Conv"))
        graph = chain([2, 4, 3, 8], size=2)  # Conv, Relu, Conv, Relu, Conv, Relu: the one in the middle of 3 filters
        assert list(fused_costs(graph, device(conv, fusions=fusions))) == [
            ((0, 1), 1.0 + 0.5 * 4 + 0.25 * 4),
            ((4, 5), 1.0 + 0.5 * 4 + 0.25 * 8),
            ((0, 2), 1.0 + 0.5 * 4),
        ]

    @pytest.mark.parametrize("rest", [{"max_rank": 3}, {"datatypes": frozenset({"FP16"})}])
    def test_every_member_s_tensors_are_ones_that_the_device_takes(self, rest: dict[str, object]) -> None:
        conv, fusions = Family(frozenset({"Conv"}), (), ()), (Fusion(("Conv", "Relu")),)
        assert list(fused_costs(chain([1, 1]), device(conv, fusions=fusions)))
        assert not list(fused_costs(chain([1, 1]), device(conv, fusions=fusions, **rest)))


def add(rows: int) -> Graph:
    return single_operator("Add", [(rows, 512), (rows, 512)], (rows, 512))


def product(rows: int) -> Graph:
    return single_operator("MatMul", [(rows, 512), (512, 512)], (rows, 512))


class TestTheShippedBoard:
    """DCG-2024: Section 4.2 and Figure 8, Section 2.3 and Figure 2(b), Table 2, Section 4.3.1."""

    def test_additions_against_cpu_s(self) -> None:
        speedups = [cost_s(add(rows), CPU_S) / cost_s(add(rows), PIM) for rows in ROWS]
        assert speedups == sorted(speedups)
        assert speedups[0] == pytest.approx(2.1, rel=0.03)
        assert speedups[-1] == pytest.approx(3.4, rel=0.03)
        assert all(2.1 <= speedup <= 3.4 for speedup in speedups)

    def test_additions_against_cpu_p(self) -> None:
        speedups = [cost_s(add(rows), CPU_P) / cost_s(add(rows), PIM) for rows in ROWS]
        assert max(speedups) == pytest.approx(2.8, rel=0.03)
        assert min(speedups) == pytest.approx(2.2, rel=0.03)
        assert all(2.2 <= speedup <= 2.8 for speedup in speedups)

    def test_additions_in_parallel_gain_with_rows_only(self) -> None:
        speedups = [cost_s(add(rows), CPU_S) / cost_s(add(rows), CPU_P) for rows in ROWS]
        assert speedups == sorted(speedups)
        assert speedups[1] <= 1 < speedups[2]

    def test_products_against_cpu_s(self) -> None:
        speedups = [cost_s(product(rows), CPU_S) / cost_s(product(rows), PIM) for rows in ROWS]
        assert speedups[0] == pytest.approx(10.4, rel=0.03)
        assert speedups[-1] == pytest.approx(5.6, rel=0.03)
        assert all(5.6 <= speedup <= 10.4 for speedup in speedups)

    def test_products_against_cpu_p_lose_with_rows(self) -> None:
        speedups = [cost_s(product(rows), CPU_P) / cost_s(product(rows), PIM) for rows in ROWS]
        assert speedups == sorted(speedups, reverse=True)
        assert speedups[0] == pytest.approx(3.1, rel=0.03)
        assert speedups[-1] == pytest.approx(1.5, rel=0.03)

    def test_products_in_parallel_come_near_the_number_of_cores(self) -> None:
        assert 3 < cost_s(product(64), CPU_S) / cost_s(product(64), CPU_P) < 4

    @pytest.mark.parametrize("rows", [1, *ROWS])
    @pytest.mark.parametrize(("inner", "columns"), [(512, 2), (512, 512), (768, 2), (768, 768)])  # Table 2, Gemm (2)
    def test_gemm_with_b_transposed_is_slower_on_pim(self, rows: int, inner: int, columns: int) -> None:
        shapes: list[Shape] = [(rows, inner), (columns, inner), (columns,)]
        transposed = single_operator("Gemm", shapes, (rows, columns), {"transB": 1})
        assert cost_s(transposed, PIM) > cost_s(transposed, CPU_P)

    @pytest.mark.parametrize("rows", ROWS)
    @pytest.mark.parametrize(("inner", "columns"), [(3072, 768), (768, 2304), (768, 3072), (768, 768)])  # Gemm (1)
    def test_gemm_as_it_is_is_faster_on_pim(self, rows: int, inner: int, columns: int) -> None:
        straight = single_operator("Gemm", [(rows, inner), (inner, columns), (columns,)], (rows, columns))
        assert cost_s(straight, PIM) < cost_s(straight, CPU_P)

    @pytest.mark.parametrize(
        "op", ["Div", "Erf", "Exp", "Tanh", "Softmax", "Sqrt", "Pow", "ReduceMean", "Sigmoid", "Relu", "Reshape"]
    )
    def test_pim_has_no_division_and_no_functions(self, op: str) -> None:
        graph = single_operator(op, [(1, 8, 512)], (1, 8, 512))
        assert cost_s(graph, PIM) == math.inf
        assert cost_s(graph, CPU_S) < math.inf

    @pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
    def test_pim_s_operands_are_those_of_table_2(self, op: str) -> None:
        assert cost_s(single_operator(op, [(1, 8, 512), (1, 8, 1)], (1, 8, 512)), PIM) < math.inf
        assert cost_s(single_operator(op, [(1, 8, 16, 16), (1, 1, 1, 16)], (1, 8, 16, 16)), PIM) == math.inf
        assert cost_s(single_operator(op, [(4,), (4,)], (4,), datatype="INT64"), PIM) == math.inf

    def test_64_kib_go_in_1_83_times_as_fast_as_out(self) -> None:
        tensor = Tensor("t", (32 * 1024,), "FP32")  # 2 bytes an element on the way
        assert transfer_bytes(tensor, PIM) == 64 * 1024
        assert transfer_cost_s(tensor, PIM, CPU_P) / transfer_cost_s(tensor, CPU_S, PIM) == pytest.approx(
            1.83, rel=0.01
        )

    @pytest.mark.parametrize("elements", [1, 1024, 32 * 1024, 1 << 20])
    def test_the_way_in_is_never_slower(self, elements: int) -> None:
        tensor = Tensor("t", (elements,), "FP32")
        assert transfer_cost_s(tensor, CPU_S, PIM) <= transfer_cost_s(tensor, PIM, CPU_S)
        assert transfer_cost_s(tensor, CPU_S, CPU_P) == 0.0
