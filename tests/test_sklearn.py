"""RareClassifier is a scikit-learn classifier."""

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.model_selection import cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

from rarecall.sklearn import RareClassifier  # noqa: E402


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reader", ["nearest", "blend"])
def test_the_checks_of_scikit_learn_pass(reader):
    results = check_estimator(RareClassifier(reader=reader), on_fail=None)
    assert [each["check_name"] for each in results if each["status"] == "failed"] == []
    assert sum(each["status"] == "passed" for each in results) > 40


def test_it_works_in_a_pipeline_and_learns_a_class_from_one_example():
    x, y = load_digits(return_X_y=True)
    assert cross_val_score(make_pipeline(StandardScaler(), RareClassifier("nearest")), x, y, cv=3).min() > 0.9
    classifier = RareClassifier("nearest").fit(x[y < 9][:500], y[y < 9][:500])
    classifier.partial_fit(x[y == 9][:1], y[y == 9][:1])
    assert classifier.classes_.tolist() == list(range(10))
    assert classifier.predict(x[y == 9][:1]) == [9]
    assert np.allclose(classifier.predict_proba(x[:300]).sum(1), 1)


def test_partial_fit_takes_new_labels_in_any_order_and_grows():
    random = np.random.default_rng(0)
    centres = random.normal(size=(30, 16))
    names = np.array([f"class{i:02d}" for i in random.permutation(30)])
    classifier = RareClassifier("nearest")
    for _ in range(60):
        rows = random.integers(30, size=70)
        classifier.partial_fit(centres[rows] + 0.6 * random.normal(size=(70, 16)), names[rows])
    assert classifier.score(centres, names) == 1.0
