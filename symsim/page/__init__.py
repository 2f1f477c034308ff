"""The page that answers: a report's formulas compiled to JavaScript, with its sizes, degrees and rates to move."""
