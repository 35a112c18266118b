# Host script: what would run on the system too.
import argparse

import numpy as np
from cerebras.sdk.runtime.sdkruntimepybind import MemcpyDataType, MemcpyOrder, SdkRuntime

parser = argparse.ArgumentParser()
parser.add_argument("--name")
args = parser.parse_args()

WIDTH, N = 4, 8
runner = SdkRuntime(args.name)
y = runner.get_id("y")
runner.load()
runner.run()

data = np.arange(WIDTH * N, dtype=np.float32)
options = {"streaming": False, "data_type": MemcpyDataType.MEMCPY_32BIT, "order": MemcpyOrder.ROW_MAJOR}
runner.memcpy_h2d(y, data, 0, 0, WIDTH, 1, N, nonblock=False, **options)
runner.launch("scale", np.float32(3.0), nonblock=False)
found = np.zeros(WIDTH * N, np.float32)
runner.memcpy_d2h(found, y, 0, 0, WIDTH, 1, N, nonblock=False, **options)
runner.stop()

np.testing.assert_array_equal(found, 3 * data)
print("SUCCESS")
