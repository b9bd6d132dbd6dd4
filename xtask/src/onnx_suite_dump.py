"""Writes the node tests of the installed `onnx` package: DIR/CASE/model.onnx, test_data_set_N/{input,output}_M.pb."""

import json
import os
import sys
import warnings

warnings.filterwarnings("ignore")

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests


def to_proto(value, name):
    if isinstance(value, TensorProto):
        return value
    if isinstance(value, list):
        return numpy_helper.from_list(value, name)
    if isinstance(value, dict):
        return numpy_helper.from_dict(value, name)
    if value is None:
        return numpy_helper.from_optional(value, name)
    return numpy_helper.from_array(np.asarray(value), name)


def main(out):
    for case in load_model_tests(kind="node"):
        folder = os.path.join(out, case.name)
        os.makedirs(folder, exist_ok=True)
        if case.model is None:
            continue
        with open(os.path.join(folder, "model.onnx"), "wb") as f:
            f.write(case.model.SerializeToString())
        with open(os.path.join(folder, "tolerance.json"), "w") as f:
            json.dump({"rtol": case.rtol, "atol": case.atol}, f)
        for n, (inputs, outputs) in enumerate(case.data_sets or []):
            data = os.path.join(folder, f"test_data_set_{n}")
            os.makedirs(data, exist_ok=True)
            for kind, values, infos in (
                ("input", inputs, case.model.graph.input),
                ("output", outputs, case.model.graph.output),
            ):
                for i, value in enumerate(values):
                    with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                        f.write(to_proto(value, infos[i].name).SerializeToString())
    with open(os.path.join(out, "complete"), "w") as f:
        f.write("")


main(sys.argv[1])
